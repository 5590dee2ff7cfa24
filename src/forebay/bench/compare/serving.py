"""Measures a server process from outside: start to first token, a load over HTTP, memory. The same for every side."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import httpx2

from forebay.bench.client import Target, first_model, one_token_words, open_client, send
from forebay.bench.compare.processes import Command, PeerError, Running, started
from forebay.bench.compare.rows import MEMORY, SERVING, SERVING_ITL, SERVING_TTFT, START, Load, Row
from forebay.bench.compare.turns import Turn
from forebay.bench.load import run_load, warm_up
from forebay.bench.metrics import RequestResult, summarise
from forebay.bench.workload import WORDS, Sample, Shape, random_samples
from forebay.core.errors import ConfigError, ForebayError

_POLL_S = 0.02
_FEW_WORDS = 50
_WARM_TOKENS = 8
_KEPT = ("output_throughput", "median_ttft_ms", "p99_ttft_ms", "median_itl_ms", "p99_itl_ms", "total_input_tokens")
_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Session:
    """One server's life."""

    command: Command
    port: int
    """Where it listens on 127.0.0.1."""
    load: Load
    seed: int
    """Decides the prompts."""
    timeout_s: float
    """Longest time to start, and for each number of clients."""


def measure_server(session: Session, rows: Sequence[Row]) -> Turn:
    """Start the server, measure, and end it. What fails is in the turn's failures, for each of the rows.

    The first token is that of one small request, sent again and again until the server answers it. Every number of
    clients gets its own prompts, so that no prefix cache helps.
    """
    names = [row.name for row in rows]
    turn = Turn()
    begun = time.perf_counter()
    try:
        with started(session.command) as process:
            asyncio.run(_measure(session, process, begun, names, turn))
    except ForebayError as error:
        turn.failures.update({name: str(error) for name in names if name not in turn.values})
    except TimeoutError:
        reason = f"the load did not end within {session.timeout_s:.0f} s"
        turn.failures.update({name: reason for name in names if name not in turn.values})
    turn.values = {name: value for name, value in turn.values.items() if name in names}
    return turn


async def _measure(session: Session, process: Running, begun: float, names: Sequence[str], turn: Turn) -> None:
    async with open_client(f"http://127.0.0.1:{session.port}", None) as client:
        model = await _first_token(process, client, begun + session.timeout_s)
        turn.values[START] = time.perf_counter() - begun
        if set(names) == {START}:
            return
        target = Target(str(client.base_url), "/v1/completions", model, ignore_eos=True, temperature=0.0)
        words = await one_token_words(client, model, WORDS)
        for clients in session.load.clients:
            samples = _samples(session, clients, words)
            async with asyncio.timeout(session.timeout_s):
                turn.loads[clients] = await _load(client, target, samples, clients)
        process.check_alive()
        turn.values[MEMORY] = process.memory_bytes() / _MEBIBYTE
    most = turn.loads[max(session.load.clients)]
    turn.values |= {SERVING: most["output_throughput"], SERVING_ITL: most["p99_itl_ms"]}
    turn.values[SERVING_TTFT] = most["median_ttft_ms"]


async def _first_token(process: Running, client: httpx2.AsyncClient, deadline: float) -> str:
    """The name of the server's model, once it has generated a token."""
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
                return model
            last = result.error
        await asyncio.sleep(_POLL_S)
    raise PeerError(f"{process.name} gave no token in time: {last}. {process.last_words()}")


def _samples(session: Session, clients: int, words: Sequence[str]) -> list[Sample]:
    """The requests of one load, and one more that warms the server up."""
    load = session.load
    shape = Shape(load.input_tokens, load.output_tokens)
    known = words if len(words) >= _FEW_WORDS else WORDS
    return random_samples(clients * load.requests_per_client + 1, shape, known, session.seed * 1000 + clients)


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
