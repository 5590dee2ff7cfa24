"""A real worker process behind a router: answers, hang-ups, overload, loss, errors at start, and nothing left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from forebay.cluster import WorkerOptions, local_worker
from forebay.core.errors import (
    ConfigError,
    ContextLengthError,
    EngineUnavailableError,
    ModelNotFoundError,
    OverloadedError,
)
from forebay.core.messages import TokenOutput
from forebay.core.request import FinishReason, GenerateRequest, Priority, SamplingParams
from forebay.router import Router

PROMPT = [(7 * i) % 250 for i in range(50)]


def options_for(model: Path, **options: object) -> WorkerOptions:
    return WorkerOptions(model=str(model), threads=1, **options)  # type: ignore[arg-type]


def request(name: str, prompt: list[int] | None = None, **sampling: object) -> GenerateRequest:
    params = SamplingParams(**{"max_tokens": 20, "temperature": 0.0} | sampling)  # type: ignore[arg-type]
    return GenerateRequest(id=name, prompt_ids=prompt or PROMPT, sampling=params)


async def collect(router: Router, asked: GenerateRequest) -> dict[int, list[TokenOutput]]:
    choices: dict[int, list[TokenOutput]] = {}
    async with aclosing(router.generate(asked)) as outputs:
        async for output in outputs:
            choices.setdefault(output.index, []).append(output)
    return choices


async def tokens_of(router: Router, asked: GenerateRequest) -> list[int]:
    return [token for output in (await collect(router, asked))[0] for token in output.token_ids]


async def hang_up_after(router: Router, asked: GenerateRequest, outputs: int) -> None:
    async with aclosing(router.generate(asked)) as stream:
        async for _ in stream:
            outputs -= 1
            if outputs <= 0:
                return


async def assert_all_free(router: Router) -> None:
    report = await router.check_integrity()
    assert report.problems == []
    assert (report.pages_used, report.sequences) == (0, 0)


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "forebay.engine.worker" in " ".join(child.cmdline())]


async def test_answers_choices_logprobs_and_cache(tiny_llama: Path) -> None:
    stages: list[str] = []
    options = options_for(tiny_llama, kv_memory=4 << 20)
    async with local_worker(options, lambda stage, _: stages.append(stage)) as router:
        assert router.healthy
        assert router.model.vocab_size == 256
        assert "loading weights" in stages

        first = await collect(router, request("a"))
        assert first[0][-1].finish_reason is FinishReason.LENGTH
        assert first[0][0].cached_tokens == 0
        greedy = [token for output in first[0] for token in output.token_ids]
        assert len(greedy) == 20

        again = await collect(router, request("b"))
        assert again[0][0].cached_tokens == 48, "three full pages come from the cache"
        assert [token for output in again[0] for token in output.token_ids] == greedy

        stopped = await tokens_of(router, request("c", stop_token_ids=(greedy[5],)))
        assert stopped == greedy[: greedy.index(greedy[5]) + 1]

        choices = await collect(router, request("d", n=4, temperature=1.0, seed=3, logprobs=2, prompt_logprobs=1))
        assert sorted(choices) == [0, 1, 2, 3]
        assert len({tuple(t for o in outputs for t in o.token_ids) for outputs in choices.values()}) > 1
        logprobs = [found for output in choices[2] for found in output.logprobs or []]
        assert len(logprobs) == 20
        assert all(len(found.top) == 2 and found.logprob <= found.top[0].logprob <= 0 for found in logprobs)
        prompt = choices[0][0].prompt_logprobs or []
        assert len(prompt) == 50
        assert prompt[0] is None
        assert [found.token_id for found in prompt if found] == PROMPT[1:]

        refused = await collect(router, request("e", prompt=[1, 2, 999]))
        assert refused[0][0].finish_reason is FinishReason.ERROR
        assert "vocabulary of 256" in (refused[0][0].error or "")
        with pytest.raises(ContextLengthError, match="512 tokens, but the model's context is 512"):
            await collect(router, request("f", prompt=[1] * 512))
        await assert_all_free(router)
    assert children() == []


async def test_an_answer_does_not_depend_on_who_else_is_there(tiny_llama: Path) -> None:
    """Few pages, many requests: sequences are put back, hang up and share; each answer equals the one given alone."""
    options = options_for(tiny_llama, kv_memory=34 * 4096, max_running=16)
    asked = [
        request(
            f"r{i}",
            prompt=[i, *PROMPT[: 3 + (11 * i) % 47] * (1 + i % 3)],
            temperature=0.0 if i % 2 else 1.0,
            seed=i,
            max_tokens=60 + 5 * i,
        )
        for i in range(12)
    ]
    async with local_worker(options) as router:
        alone = [await tokens_of(router, one) for one in asked]
        async with asyncio.TaskGroup() as group:
            together = [group.create_task(tokens_of(router, one)) for one in asked]
            for i, one in enumerate(asked):
                leaver = request(f"leaver{i}", prompt=one.prompt_ids, max_tokens=200)
                group.create_task(hang_up_after(router, leaver, i % 5))
        assert [task.result() for task in together] == alone
        await assert_all_free(router)
        await asyncio.sleep(0.3)  # the statistics come a few times a second
        assert router.stats.preemptions > 0, "the scenario must put sequences back, or it shows nothing"


async def test_waiting_requests_are_bounded(tiny_llama: Path) -> None:
    options = options_for(tiny_llama, max_running=1, max_waiting=2)
    async with local_worker(options) as router:
        async with aclosing(router.generate(request("running", max_tokens=400))) as stream:
            await anext(stream)
            async with asyncio.TaskGroup() as group:
                waiting = [group.create_task(collect(router, request(f"w{i}"))) for i in range(2)]
                await asyncio.sleep(0)
                with pytest.raises(OverloadedError) as caught:
                    await collect(router, request("one too many"))
                assert caught.value.retry_after >= 1.0
                await stream.aclose()
            assert all(task.result()[0][-1].finish_reason is FinishReason.LENGTH for task in waiting)
        await assert_all_free(router)


async def test_a_killed_worker_ends_its_requests_with_an_error(tiny_llama: Path) -> None:
    async with local_worker(options_for(tiny_llama)) as router:

        async def kill_and_read_on() -> None:
            async with aclosing(router.generate(request("victim", max_tokens=450))) as stream:
                await anext(stream)
                children()[0].send_signal(signal.SIGKILL)
                async for _ in stream:
                    pass

        with pytest.raises(EngineUnavailableError, match="lost while"):
            await kill_and_read_on()
        assert not router.healthy
        with pytest.raises(EngineUnavailableError, match="not there"):
            await collect(router, request("later"))
        with pytest.raises(EngineUnavailableError):
            await router.check_integrity()
    assert children() == []


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"model": "/nowhere/model.gguf"}, ModelNotFoundError, "no file"),
        ({"kv_memory": 1000}, ConfigError, "at least 2"),
        ({"max_model_len": 100_000}, ConfigError, "context is 512"),
    ],
)
async def test_a_worker_that_cannot_start_says_why(
    tiny_llama: Path, options: dict[str, object], error: type[Exception], words: str
) -> None:
    asked = WorkerOptions(**{"model": str(tiny_llama)} | options)  # type: ignore[arg-type]
    with pytest.raises(error, match=words):
        async with local_worker(asked):
            pytest.fail("it must not start")
    assert children() == []


async def test_priorities_reach_the_scheduler(tiny_llama: Path) -> None:
    """With one place, a critical request that came last runs before the batch jobs that wait."""
    options = options_for(tiny_llama, max_running=1)
    order: list[str] = []

    async def run(router: Router, name: str, priority: Priority) -> None:
        sampling = SamplingParams(max_tokens=30, temperature=0.0)
        await collect(router, GenerateRequest(id=name, prompt_ids=PROMPT, sampling=sampling, priority=priority))
        order.append(name)

    async with local_worker(options) as router, aclosing(router.generate(request("first", max_tokens=300))) as stream:
        await anext(stream)
        async with asyncio.TaskGroup() as group:
            for i in range(3):
                group.create_task(run(router, f"batch{i}", Priority.BACKGROUND_BATCH))
            await asyncio.sleep(0)
            group.create_task(run(router, "critical", Priority.CRITICAL_INTERACTIVE))
            await asyncio.sleep(0)
            await stream.aclose()
    assert order == ["critical", "batch0", "batch1", "batch2"]


PARENT = """
import asyncio, os, sys
from forebay.cluster import WorkerOptions, local_worker
async def main():
    async with local_worker(WorkerOptions(model=sys.argv[1])):
        print("ready", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


def test_a_worker_does_not_outlive_a_killed_parent(tiny_llama: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tiny_llama)], stdout=subprocess.PIPE, text=True, env=os.environ
    ) as parent:
        if parent.stdout is None:
            pytest.fail("no output")
        assert parent.stdout.readline() == "ready\n"
        workers = psutil.Process(parent.pid).children()
        assert len(workers) == 1
        parent.kill()
        gone, alive = psutil.wait_procs(workers, timeout=30)
        assert not alive
        assert len(gone) == 1
