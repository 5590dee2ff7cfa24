"""A worker that is gone before the router has heard of it: requests end with an error instead of waiting for ever."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from forebay.core.errors import EngineUnavailableError
from forebay.core.messages import ModelInfo, Ready, Shutdown
from forebay.core.request import GenerateRequest, SamplingParams
from forebay.router import Router, WorkerLink

MODEL = ModelInfo(
    name="m",
    architecture="llama",
    vocab_size=8,
    max_model_len=64,
    fingerprint="00",
    parameters=1,
    weight_bytes=1,
    kv_bytes=1,
    kernels="none",
)


async def outcome(router: Router) -> str:
    request = GenerateRequest(id="r", prompt_ids=[1], sampling=SamplingParams(max_tokens=1))
    try:
        async with aclosing(router.generate(request)) as outputs:
            async for _ in outputs:
                return "answered"
    except EngineUnavailableError:
        return "lost"
    return "ended"


async def test_a_request_does_not_wait_for_a_worker_that_is_gone(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path / 'worker'}"
    with WorkerLink(address) as link, zmq.asyncio.Context() as context:
        router = Router(link, max_waiting=8)
        async with asyncio.TaskGroup() as group:
            receiving = group.create_task(router.run())
            worker = context.socket(zmq.PAIR)
            worker.connect(address)
            await worker.send(msgspec.msgpack.encode(Ready(MODEL)))
            await router.wait_ready()
            worker.close(linger=0)
            while await link.offer(Shutdown()):  # noqa: ASYNC110 (ZeroMQ has no event for it)
                await asyncio.sleep(0.01)
            asking = group.create_task(outcome(router))
            await asyncio.sleep(0.05)
            assert not asking.done(), "the request waits for the worker to take it"
            router.fail(EngineUnavailableError("The engine's process ended."))
            async with asyncio.timeout(10):
                assert await asking == "lost"
            receiving.cancel()
        assert not router.healthy
