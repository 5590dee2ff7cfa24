"""Measures a server process from outside: start to first token, a load over HTTP, memory. The same for every side."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import httpx2

from forebay.bench.client import Target, first_model, one_token_words, open_client, send
from forebay.bench.compare.kept import Kept, Use
from forebay.bench.compare.planning import clients_of_turn
from forebay.bench.compare.processes import Command, PeerError, Running
from forebay.bench.compare.rows import MEMORY, SERVING, SERVING_ITL, SERVING_TTFT, START, Load, Row
from forebay.bench.compare.turns import Turn
from forebay.bench.load import run_load, warm_up
from forebay.bench.metrics import RequestResult, summarise
from forebay.bench.workload import WORDS, Sample, Shape, random_samples
from forebay.core.errors import ConfigError, ForebayError

_POLL_S = 0.02
_FEW_WORDS = 50
_WARM_TOKENS = 8
_SETTLED_S = 3.0
"""Memory is read so long after the load, when a server has given back what only the load needed."""
_KEPT = ("output_throughput", "median_ttft_ms", "p99_ttft_ms", "median_itl_ms", "p99_itl_ms", "total_input_tokens")
_AT_START = {START, MEMORY}
"""Rows that only a server has which was just started."""
_MEBIBYTE = 1 << 20


class Server:
    """One side's server over many turns; see `Kept`."""

    def __init__(self, command: Callable[[int], Command], load: Load, timeout_s: float) -> None:
        """`command` serves on a port; `timeout_s` is the longest time to start, and for each number of clients."""
        self._command = command
        self._load = load
        self._timeout_s = timeout_s
        self._kept = Kept()
        self._port = 0

    def measure(self, rows: Sequence[Row], number: int, turn: Turn) -> None:
        """Measure rows of the kind server in turn `number`, which decides the prompts and who asks; fills in `turn`.

        Start is the time to the first token of one small request, sent again and again until the server answers it. It
        and memory are those of a server just started: one that was kept has none to give. Every number of clients gets
        its own prompts, so that no prefix cache helps.
        """
        names = {row.name for row in rows}
        measured = Turn()
        try:
            if not self._measured(names, number, measured):
                self._measured(names, number, measured)
        except ForebayError as error:
            measured.fail(rows, error)
        turn.loads |= measured.loads
        turn.failures |= measured.failures
        for name in names & measured.values.keys():
            turn.values[name], turn.seconds[name] = measured.values[name], measured.seconds[name]

    def close(self) -> None:
        """End the server."""
        self._kept.close()

    def _measured(self, names: set[str], number: int, turn: Turn) -> bool:
        """False when a server that had been kept failed. Raises ForebayError when a new one does."""
        fresh = True
        try:
            with self._kept.use(self._on_free_port, self._ready) as use:
                fresh = use.start_s is not None
                if use.start_s is not None:
                    turn.values[START] = turn.seconds[START] = use.start_s
                if names - (_AT_START if use.start_s is None else {START}):
                    asyncio.run(self._measure(use, number, turn))
        except ForebayError:
            if fresh:
                raise
            self._kept.distrust()
            return False
        return True

    def _on_free_port(self) -> Command:
        self._port = free_port()
        return self._command(self._port)

    def _ready(self, process: Running) -> None:
        asyncio.run(self._answers(process))

    async def _answers(self, process: Running) -> None:
        async with self._client() as client:
            await _first_token(process, client, time.perf_counter() + self._timeout_s)

    def _client(self) -> httpx2.AsyncClient:
        return open_client(f"http://127.0.0.1:{self._port}", None, keep_alive=False)

    async def _measure(self, use: Use, number: int, turn: Turn) -> None:
        async with self._client() as client:
            model = await first_model(client)
            target = Target(str(client.base_url), "/v1/completions", model, ignore_eos=True, temperature=0.0)
            words = await one_token_words(client, model, WORDS)
            for clients in clients_of_turn(self._load, number):
                samples = _samples(self._load, number, clients, words)
                begun = time.perf_counter()
                try:
                    async with asyncio.timeout(self._timeout_s):
                        turn.loads[clients] = await _load(client, target, samples, clients)
                except TimeoutError as error:
                    raise PeerError(f"the load did not end within {self._timeout_s:.0f} s") from error
                took = time.perf_counter() - begun
        use.process.check_alive()
        most = turn.loads[max(self._load.clients)]
        turn.values |= {SERVING: most["output_throughput"], SERVING_ITL: most["p99_itl_ms"]}
        turn.values[SERVING_TTFT] = most["median_ttft_ms"]
        if use.start_s is not None:
            await asyncio.sleep(_SETTLED_S)
            turn.values[MEMORY] = use.process.memory_bytes() / _MEBIBYTE
        turn.seconds |= dict.fromkeys((SERVING, SERVING_ITL, SERVING_TTFT, MEMORY), took)


async def _first_token(process: Running, client: httpx2.AsyncClient, deadline: float) -> None:
    """Returns once the server has generated a token."""
    last = "it does not listen"
    while time.perf_counter() < deadline:
        process.check_alive()
        try:
            async with asyncio.timeout(max(0.0, deadline - time.perf_counter())):
                model = await first_model(client)
                target = Target(str(client.base_url), "/v1/completions", model, temperature=0.0)
                result = await send(client, target, Sample("The river", 2, 1), time.perf_counter)
        except (ConfigError, TimeoutError) as error:
            last = str(error) or last
        else:
            if result.ok:
                return
            last = result.error
        await asyncio.sleep(_POLL_S)
    raise PeerError(f"{process.name} gave no token in time: {last}. {process.last_words()}")


def _samples(load: Load, number: int, clients: int, words: Sequence[str]) -> list[Sample]:
    """The requests of one load in turn `number`, and one more that warms the server up."""
    shape = Shape(load.input_tokens, load.output_tokens)
    known = words if len(words) >= _FEW_WORDS else WORDS
    return random_samples(clients * load.requests_per_client + 1, shape, known, number * 1000 + clients)


async def _load(
    client: httpx2.AsyncClient, target: Target, samples: Sequence[Sample], clients: int
) -> dict[str, float]:
    async def ask(sample: Sample) -> RequestResult:
        return await send(client, target, sample, time.perf_counter)

    *timed, warming = samples
    await warm_up(ask, replace(warming, max_tokens=_WARM_TOKENS), 1)
    results, duration = await run_load(ask, timed, [0.0] * len(timed), clients)
    failed = [result for result in results if not result.ok]
    if failed:
        raise PeerError(f"{len(failed)} of {len(timed)} requests failed: {failed[0].error}")
    short = [result for result in results if result.output_tokens != warming.max_tokens]
    if short:
        raise PeerError(f"{len(short)} of {len(timed)} answers have another length than {warming.max_tokens} tokens")
    figures = summarise(results, duration, metrics=("ttft", "itl"), percentiles=(99.0,))
    return {name: float(figures[name]) for name in _KEPT}


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody has at this moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
