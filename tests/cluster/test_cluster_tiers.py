"""Worker processes over one cache directory: ended in order, killed, and two at a time; the answers stay the same."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest

from forebay.cli.main import main
from forebay.cluster import WorkerOptions, local_worker
from forebay.core.errors import ConfigError, EngineUnavailableError
from forebay.core.messages import TierStats, TokenOutput
from forebay.core.request import GenerateRequest, Priority, SamplingParams
from forebay.router import Router

PROMPT = random.Random(4).choices(range(3, 250), k=200)
OTHER = random.Random(5).choices(range(3, 250), k=490)
PROMPTS = {f"p{i}": [*PROMPT[:96], *random.Random(i).choices(range(3, 250), k=16 * i)] for i in range(8)}


def options(model: Path, folder: Path, **more: Any) -> WorkerOptions:
    base: dict[str, Any] = {
        "host_pool": 8 << 20,
        "cache_dir": str(folder),
        "cache_disk": 64 << 20,
        "cache_required": True,
    }
    return WorkerOptions(model=str(model), threads=1, dtype="fp32", **(base | more))


async def ask(
    router: Router,
    name: str,
    prompt: list[int],
    max_tokens: int = 40,
    *,
    answering: asyncio.Event | None = None,
    **more: Any,
) -> list[TokenOutput]:
    """All of the answer; `answering` is set once it begins."""
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0)
    request = GenerateRequest(id=name, prompt_ids=prompt, sampling=sampling, **more)
    answer: list[TokenOutput] = []
    async with aclosing(router.generate(request)) as outputs:
        async for output in outputs:
            answer.append(output)
            if answering is not None:
                answering.set()
    return answer


def tokens(outputs: list[TokenOutput]) -> list[int]:
    return [token for output in outputs for token in output.token_ids]


async def tiers(router: Router, **least: int) -> TierStats:
    """The worker's figures, once each named one is at least so high."""
    for _ in range(400):
        found = router.stats.tiers
        if found is not None and all(getattr(found, name) >= value for name, value in least.items()):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"not reached: {least}, but {router.stats.tiers}")


async def test_a_restart_reads_what_was_computed_before(tiny_llama: Path, tmp_path: Path) -> None:
    async with local_worker(options(tiny_llama, tmp_path)) as router:
        cold = await ask(router, "cold", PROMPT)
        assert cold[0].cached_tokens == 0
    async with local_worker(options(tiny_llama, tmp_path)) as router:
        warm = await ask(router, "warm", PROMPT)
        assert (warm[0].cached_tokens, warm[0].cached_disk) == (192, 192)
        assert tokens(warm) == tokens(cold)
        assert (await tiers(router, loads=1)).counters["loaded_disk"] == 12


async def test_tenants_share_what_the_operator_marks(tiny_llama: Path, tmp_path: Path) -> None:
    async with local_worker(options(tiny_llama, tmp_path)) as router:
        assert (await tiers(router)).host_pages_total > 0
        await router.mark_public(PROMPT[:100])
        first, second = [await ask(router, tenant, PROMPT, 5, tenant=tenant) for tenant in "ab"]
        assert (first[0].cached_tokens, second[0].cached_tokens) == (0, 96)
        assert tokens(first) == tokens(second)


async def kill_under_load(model: Path, folder: Path, round_: int) -> dict[str, list[int]]:
    """Answers of a worker that is killed at some moment while it computes, writes and loads; whole ones only. The first
    lives until it has written something."""
    found: dict[str, list[int]] = {}

    async def one(router: Router, name: str) -> None:
        found[name] = tokens(await ask(router, f"{name} {round_}", PROMPTS[name], 30))

    with pytest.raises(ExceptionGroup) as lost:  # noqa: PT012 (the worker dies within)
        async with local_worker(options(model, folder, kv_memory=48 * 8192, max_model_len=320)) as router:
            (worker,) = (p for p in psutil.Process().children() if "forebay.engine.worker" in " ".join(p.cmdline()))
            async with asyncio.TaskGroup() as group:
                for name in PROMPTS:
                    group.create_task(one(router, name))
                if round_ == 0:
                    await tiers(router, disk_pages=1)
                await asyncio.sleep(random.Random(round_).uniform(0.0, 0.6))
                worker.kill()
                await ask(router, "lost", PROMPT)
    assert lost.group_contains(EngineUnavailableError)
    return found


async def test_a_killed_worker_leaves_right_pages_or_none(tiny_llama: Path, tmp_path: Path) -> None:
    """FOREBAY_KILL_ROUNDS sets how often."""
    async with local_worker(options(tiny_llama, tmp_path / "other", host_pool=0, prefix_cache=False)) as router:
        right = {name: tokens(await ask(router, name, ids, 30)) for name, ids in PROMPTS.items()}
    folder = tmp_path / "kv"
    answers = cached = 0
    for round_ in range(int(os.environ.get("FOREBAY_KILL_ROUNDS", "3"))):
        found = await kill_under_load(tiny_llama, folder, round_)
        assert found == {name: right[name] for name in found}
        assert main(["cache", "verify", "--cache-dir", str(folder)]) == 0
        answers += len(found)
    async with local_worker(options(tiny_llama, folder)) as router:
        for name, ids in PROMPTS.items():
            outputs = await ask(router, name, ids, 30)
            assert tokens(outputs) == right[name]
            cached += outputs[0].cached_disk
        assert (await tiers(router)).counters["corrupt_disk"] == 0
    assert cached > 0, "what was written before the kills is read after them"


async def test_preempted_by_another_client_it_goes_on_unchanged(tiny_llama: Path, tmp_path: Path) -> None:
    small = options(tiny_llama, tmp_path, kv_memory=32 * 8192, max_model_len=512)
    long = 512 - len(PROMPT)
    async with local_worker(small) as router:
        cold = tokens(await ask(router, "cold", PROMPT, long))
        await ask(router, "evicts", OTHER, 2)
        answering = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            batch = group.create_task(
                ask(router, "batch", PROMPT, long, answering=answering, priority=Priority.BACKGROUND_BATCH)
            )
            await answering.wait()
            await ask(router, "critical", OTHER[1:], 2, priority=Priority.CRITICAL_INTERACTIVE)
        found = await tiers(router, restored=1)
        assert router.stats.preemptions >= 1
        assert found.counters["loaded_host"] >= 1
    assert tokens(batch.result()) == cold


async def test_a_second_server_does_not_touch_the_first_ones_folder(tiny_llama: Path, tmp_path: Path) -> None:
    async with local_worker(options(tiny_llama, tmp_path)) as router:
        cold = tokens(await ask(router, "one", PROMPT))
        with pytest.raises(ConfigError, match="in use by another server"):
            async with local_worker(options(tiny_llama, tmp_path)):
                pass
        async with local_worker(options(tiny_llama, tmp_path, cache_required=False)) as second:
            assert tokens(await ask(second, "two", PROMPT)) == cold
            assert (await tiers(second)).disk_bytes_limit == 0
