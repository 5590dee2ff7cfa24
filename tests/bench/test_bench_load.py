"""Sending under a schedule and a concurrency limit."""

from __future__ import annotations

import asyncio

from forebay.bench.load import run_load, warm_up
from forebay.bench.metrics import RequestResult
from forebay.bench.workload import Sample

SAMPLES = [Sample(str(index), 1, 1) for index in range(6)]


async def test_results_keep_the_order_of_the_samples_and_each_is_reported_once() -> None:
    seen: list[str] = []

    async def send(sample: Sample) -> RequestResult:
        # The later a sample, the sooner it is done.
        await asyncio.sleep(0.002 * (6 - int(sample.prompt)))
        return RequestResult(text=sample.prompt)

    results, duration = await run_load(send, SAMPLES, [0.0] * 6, on_result=lambda result: seen.append(result.text))
    assert [result.text for result in results] == ["0", "1", "2", "3", "4", "5"]
    assert sorted(seen) == ["0", "1", "2", "3", "4", "5"]
    assert duration > 0


async def test_no_more_than_the_limit_are_under_way() -> None:
    active = most = 0

    async def send(sample: Sample) -> RequestResult:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(0)
        active -= 1
        return RequestResult()

    await run_load(send, SAMPLES, [0.0] * 6, max_concurrency=2)
    assert most == 2
    most = 0
    await run_load(send, SAMPLES, [0.0] * 6)
    assert most == 6


async def test_requests_leave_in_the_order_of_their_times() -> None:
    order: list[str] = []

    async def send(sample: Sample) -> RequestResult:
        order.append(sample.prompt)
        return RequestResult()

    await run_load(send, SAMPLES[:3], [0.0, 0.005, 0.01])
    assert order == ["0", "1", "2"]
    assert len(await warm_up(send, SAMPLES[0], 3)) == 3
    assert order[3:] == ["0", "0", "0"]
