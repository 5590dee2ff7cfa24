"""`forebay serve` as a user starts it, under mixed traffic with clients that hang up; then Ctrl-C. The real model."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil
from openai import AsyncOpenAI

REQUESTS = 100
CONCURRENCY = 32


@dataclass
class Served:
    """A running `forebay serve`, its address and what it has said."""

    process: subprocess.Popen[str]
    url: str = ""
    said: list[str] = field(default_factory=list)


@contextmanager
def served(*arguments: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "forebay", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        server = Served(process)
        listening = threading.Event()

        def read() -> None:
            for line in process.stderr or ():
                server.said.append(line)
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    server.url = found.group()
                    listening.set()
            listening.set()

        reader = threading.Thread(target=read)
        reader.start()
        try:
            assert listening.wait(120), "the server did not start in time"
            assert server.url, "".join(server.said)
            yield server
        finally:
            process.kill()
            reader.join()


async def one(client: AsyncOpenAI, index: int, places: asyncio.Semaphore) -> tuple[bool, int]:
    """Whether the client stayed, and how many tokens it was told of."""
    choice = random.Random(index)
    hangs_up = choice.random() < 0.3
    words = " ".join(f"word{choice.randrange(1000)}" for _ in range(int(2 ** choice.uniform(1, 6))))
    async with places:
        stream = await client.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": words}],
            max_tokens=choice.randint(1, 24),
            temperature=0.0,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True, "priority": choice.randrange(4)},
        )
        async with stream:
            tokens = 0
            async for chunk in stream:
                if hangs_up and choice.random() < 0.3:
                    return False, 0
                if chunk.usage:
                    tokens = chunk.usage.completion_tokens
            return True, tokens


async def traffic(url: str) -> list[tuple[bool, int]]:
    places = asyncio.Semaphore(CONCURRENCY)
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=240, max_retries=0) as client:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(client, index, places)) for index in range(REQUESTS)]
        return [task.result() for task in tasks]


def settled(url: str) -> dict[str, Any]:
    """The engine's recount of its pages, once it has heard of the last hang-up."""
    for _ in range(600):
        report: dict[str, Any] = httpx2.get(f"{url}/integrity", timeout=30).json()
        if report["sequences"] == 0:
            break
        time.sleep(0.05)
    return report


def test_mixed_traffic_with_hang_ups_leaves_nothing_behind(tmp_path: Path) -> None:
    tiers = ("--host-pool", "64MiB", "--cache-disk", "256MiB", "--cache-dir", str(tmp_path))
    with served("--kv-memory", "64MiB", *tiers) as server:
        results = asyncio.run(traffic(server.url))
        stayed = [(index, tokens) for index, (stays, tokens) in enumerate(results) if stays]
        assert REQUESTS / 2 < len(stayed) < REQUESTS, "some stay and some hang up"
        for index, tokens in stayed:
            choice = random.Random(index)
            choice.random()
            for _ in range(int(2 ** choice.uniform(1, 6))):
                choice.randrange(1000)
            assert tokens == choice.randint(1, 24), f"request {index} got all of its tokens"

        report = settled(server.url)
        assert report["problems"] == []
        assert (report["pages_used"], report["sequences"]) == (0, 0)

        processes = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)]
        assert len(processes) == 2, "the server and its worker"
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=60) == 130
        _, alive = psutil.wait_procs(processes, timeout=20)
        assert not alive
