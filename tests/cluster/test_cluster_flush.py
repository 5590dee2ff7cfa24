"""How long a worker that ends is waited for: longer while it says that it writes to disk, but not for ever."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from forebay.cluster import local
from forebay.core.messages import FLUSHING, Progress
from forebay.router import WorkerLink

WORKER = """
import sys, time
import msgspec, zmq
from forebay.core.messages import Progress
socket = zmq.Context().socket(zmq.PAIR)
socket.connect(sys.argv[1])
say = lambda text, share: socket.send(msgspec.msgpack.encode(Progress(text, share)))
say("here", 0.0)
sys.stdin.read()
for i in range(int(sys.argv[2])):
    say(sys.argv[3], i / 100)
    time.sleep(0.1)
time.sleep(float(sys.argv[4]))
sys.exit(7)
"""


async def start(address: str, words: int, text: str = FLUSHING, then_s: float = 0.0) -> Process:
    arguments = ("-c", WORKER, address, str(words), text, str(then_s))
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE)


async def stop(folder: Path, words: int, text: str = FLUSHING, then_s: float = 0.0) -> int | None:
    """The exit code of a worker that sends so many words, one in 0.1 s, once it is told to end."""
    address = f"ipc://{folder / 'worker'}"
    with WorkerLink(address) as link:
        process = await start(address, words, text, then_s)
        assert await link.receive() == Progress("here", 0.0)
        await local._stop(process, link)
        return process.returncode


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_GRACE_S", 0.6)
    monkeypatch.setattr(local, "_FLUSH_S", 3.0)


async def test_a_worker_that_writes_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes for longer than one that is silent gets; a busy machine has two seconds for each word."""
    monkeypatch.setattr(local, "_GRACE_S", 2.0)
    monkeypatch.setattr(local, "_FLUSH_S", 60.0)
    with caplog.at_level(logging.WARNING):
        assert await stop(tmp_path, words=25) == 7
    assert [record.getMessage() for record in caplog.records] == [
        "the engine is writing cached pages to disk (0 % done); it gets 60 s"
    ]


async def test_one_that_writes_for_ever_is_ended(tmp_path: Path) -> None:
    assert await stop(tmp_path, words=600) == -signal.SIGTERM


@pytest.mark.parametrize(("words", "text"), [(0, ""), (20, "loading weights")])
async def test_one_that_says_nothing_of_the_kind_is_ended_sooner(tmp_path: Path, words: int, text: str) -> None:
    assert await stop(tmp_path, words, text, then_s=30.0) == -signal.SIGTERM
