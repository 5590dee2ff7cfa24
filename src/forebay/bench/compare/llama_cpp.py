"""llama.cpp as a peer: llama-bench, llama-batched-bench and llama-server from a folder of binaries. Reads a GGUF file.

One process a row: a prompt or one sequence with llama-bench, several sequences with llama-batched-bench. Several
sequences share one prompt that is read once (-pps) and copied to a cache of each one's own (-no-kvu), which leaves what
is timed as it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forebay.bench.compare.processes import Command, PeerError, run, run_both
from forebay.bench.compare.rows import ROWS, Kind, Row
from forebay.bench.compare.side import Setup
from forebay.bench.compare.turns import Turn

_VERSION_S = 30.0
_BINARIES = ("llama-bench", "llama-batched-bench", "llama-server")


class LlamaCpp:
    """The binaries of one build."""

    name = "llama.cpp"

    def __init__(self, folder: Path, setup: Setup) -> None:
        """Raises PeerError when a binary or the weights are missing."""
        if setup.gguf is None:
            raise PeerError("there is no GGUF file for it; name one with --gguf")
        missing = [name for name in _BINARIES if not (folder / name).is_file()]
        if missing:
            raise PeerError(f"{folder} has no {' and no '.join(missing)}")
        self._folder = folder
        self._setup = setup
        self._gguf = setup.gguf

    def describe(self) -> dict[str, Any]:
        """See `Side`."""
        output, errors = run_both(Command((str(self._folder / "llama-server"), "--version")), _VERSION_S)
        return {
            "version": " ".join(f"{output} {errors}".split()),
            "weights": Path(self._gguf).name,
            "engine": str(self._bench(ROWS[0])),
            "server": str(self.server(0)),
        }

    def engine(self, rows: Sequence[Row], turn: Turn) -> None:
        """See `Side`."""
        for row in rows:
            begun = time.perf_counter()
            try:
                turn.values[row.name] = self._measure(row)
                turn.seconds[row.name] = time.perf_counter() - begun
            except PeerError as error:
                turn.fail([row], error)

    def close(self) -> None:
        """See `Side`: none of its processes outlives a row."""

    def server(self, port: int) -> Command:
        """See `Side`. A slot for every client, each with room for its prompt and answer."""
        load = self._setup.load
        slots = max(load.clients)
        context = slots * -(-load.cached_tokens // slots // 256) * 256
        arguments = ("-m", self._gguf, "-t", str(self._setup.threads), "-np", str(slots), "-c", str(context))
        return Command((str(self._folder / "llama-server"), *arguments, "--host", "127.0.0.1", "--port", str(port)))

    def small_server(self, port: int) -> Command | None:
        """See `Side`: it has no such mode."""

    def _measure(self, row: Row) -> float:
        if row.kind == Kind.DECODE and row.sequences > 1:
            return parse_batched_bench(run(self._batched_bench(row), self._setup.timeout_s))
        return parse_bench(run(self._bench(row), self._setup.timeout_s))

    def _bench(self, row: Row) -> Command:
        prompt, answer = (row.tokens, 0) if row.kind == Kind.PREFILL else (0, row.tokens)
        work = ("-p", str(prompt), "-n", str(answer), "-d", str(row.context), "-r", "1", "-o", "json")
        arguments = ("-m", self._gguf, "-t", str(self._setup.threads), *work)
        return Command((str(self._folder / "llama-bench"), *arguments))

    def _batched_bench(self, row: Row) -> Command:
        context = row.sequences * -(-(row.context + row.tokens) // 256) * 256
        work = ("-npp", str(row.context), "-ntg", str(row.tokens), "-npl", str(row.sequences))
        cache = ("-c", str(context), "-pps", "-no-kvu", "--output-format", "jsonl")
        arguments = ("-m", self._gguf, "-t", str(self._setup.threads), *work, *cache)
        return Command((str(self._folder / "llama-batched-bench"), *arguments))


def parse_bench(output: str) -> float:
    """Tokens a second from llama-bench's JSON: a list with one test. Raises PeerError when it is not that."""
    try:
        (test,) = json.loads(output)
        return float(test["avg_ts"])
    except (ValueError, KeyError, TypeError) as error:
        raise PeerError(f"llama-bench printed no figures but: {output[:200]!r}.") from error


def parse_batched_bench(output: str) -> float:
    """Generated tokens a second of all sequences, from llama-batched-bench's JSON lines. Raises PeerError."""
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                return float(json.loads(line)["speed_tg"])
            except (ValueError, KeyError, TypeError) as error:
                raise PeerError(f"llama-batched-bench printed {line[:200]!r}.") from error
    raise PeerError(f"llama-batched-bench printed no figures but: {output[:200]!r}.")
