"""Our own side: a process of ours for the engine's rows, and `forebay serve`, both by this interpreter."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from forebay import __version__
from forebay.bench.compare.processes import Command, PeerError, run
from forebay.bench.compare.rows import OURS, Row
from forebay.bench.compare.side import Setup, failed_turn
from forebay.bench.compare.turns import Turn
from forebay.models import ModelConfig, describe, resolve

_PROGRAM = "forebay.bench.compare.programs.ours_engine"
_PAGE_TOKENS = 16
_KV_BYTES = 2


class Ours:
    """Forebay as this interpreter would run it."""

    name = OURS

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def describe(self) -> dict[str, Any]:
        """See `Side`."""
        return {
            "version": __version__,
            "torch": version("torch"),
            "python": platform.python_version(),
            "weights": f"{resolve(self._setup.model).path.name} (--quantize {self._setup.quantize})",
            "engine": str(Command((sys.executable, "-m", _PROGRAM, json.dumps({"options": self._options(())})))),
            "server": str(self.server(0)),
        }

    def engine(self, rows: Sequence[Row]) -> Turn:
        """See `Side`; the machine's limits and the model's sizes are in the turn's extras, also without any row."""
        plan = {"options": self._options(rows), "rows": work(rows)}
        command = Command((sys.executable, "-m", _PROGRAM, json.dumps(plan)))
        try:
            return parse_program(run(command, self._setup.timeout_s), rows)
        except PeerError as error:
            return failed_turn(rows, error)

    def server(self, port: int) -> Command:
        """See `Side`. The KV cache holds what the load needs, as that of the peers."""
        config = describe(resolve(self._setup.model))
        memory = self._setup.load.cached_tokens * token_bytes(config)
        arguments = ("serve", self._setup.model, "--port", str(port), "--kv-memory", str(memory))
        same = ("--threads", str(self._setup.threads), "--quantize", self._setup.quantize)
        return Command((sys.executable, "-m", "forebay", *arguments, *same))

    def _options(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Options under which each measurement runs as one kind of step: no prefix cache, room for the most rows."""
        config = describe(resolve(self._setup.model))
        tokens = max((row.sequences * (row.context + row.tokens + 1024) for row in rows), default=1024)
        return {
            "model": self._setup.model,
            "threads": self._setup.threads,
            "quantize": self._setup.quantize,
            "prefix_cache": False,
            "target_itl_s": 60.0,
            "kv_memory": tokens * token_bytes(config),
            "max_running": max((row.sequences for row in rows), default=1),
        }


def token_bytes(config: ModelConfig) -> int:
    """Bytes of K and V of one token in bf16."""
    return 2 * config.layers * config.kv_heads * config.head_dim * _KV_BYTES


def work(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What a program is told of each row."""
    return [
        {"name": row.name, "sequences": row.sequences, "context": row.context, "tokens": row.tokens} for row in rows
    ]


def parse_program(output: str, rows: Sequence[Row]) -> Turn:
    """The turn that a program of `programs` printed. Other output may stand around it: vLLM logs to the same stream as
    it ends. Raises PeerError when there is none.
    """
    lines = output.strip().splitlines() or [""]
    turn = next((turn for turn in map(_turn_of, reversed(lines)) if turn is not None), None)
    if turn is None:
        raise PeerError(f"The program printed no figures but: {lines[-1][:200]!r}.")
    for row in rows:
        if row.name not in turn.values:
            turn.failures.setdefault(row.name, "the program gave no figure")
    return turn


def _turn_of(line: str) -> Turn | None:
    """What a line says, when it is a turn's."""
    try:
        told = json.loads(line)
        return Turn(values=dict(told["values"]), failures=dict(told["failures"]), extras=dict(told["extras"]))
    except (ValueError, KeyError, TypeError):
        return None
