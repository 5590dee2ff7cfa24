"""Runs a load test: sends samples at their times under a concurrency limit and gathers the results. Not the figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from forebay.bench.metrics import RequestResult
from forebay.bench.workload import Sample

Send = Callable[[Sample], Awaitable[RequestResult]]


async def run_load(
    send: Send,
    samples: Sequence[Sample],
    arrivals: Sequence[float],
    max_concurrency: int | None = None,
    on_result: Callable[[RequestResult], None] | None = None,
) -> tuple[list[RequestResult], float]:
    """Send `samples[i]` at `arrivals[i]` seconds from now; returns the results in order and the run's duration.

    With `max_concurrency`, a request that would exceed it waits on our side; that wait is its `queue_time` and no
    part of its latency.
    """
    limit: AbstractAsyncContextManager[object] = (
        nullcontext() if max_concurrency is None else asyncio.Semaphore(max_concurrency)
    )
    results: list[RequestResult] = [RequestResult(error="not sent") for _ in samples]

    async def one(index: int) -> None:
        due = time.perf_counter()
        async with limit:
            waited = time.perf_counter() - due
            result = await send(samples[index])
        result.queue_time = waited
        results[index] = result
        if on_result is not None:
            on_result(result)

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for index, arrival in enumerate(arrivals):
            wait = begin + arrival - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            tasks.create_task(one(index))
    return results, time.perf_counter() - begin


async def warm_up(send: Send, sample: Sample, count: int) -> list[RequestResult]:
    """Send one sample `count` times at once, for a server that starts slowly; the results count in no figure."""
    results, _ = await run_load(send, [sample] * count, [0.0] * count)
    return results
