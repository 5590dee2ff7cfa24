"""The worker's loop: freed memory goes back to the system when there was no work for a while, once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from forebay.core.messages import FromWorker, Shutdown, TokenOutput, ToWorker, WorkerStats
from forebay.engine import worker


class FakeEngine:
    """Has work at the times that a test says."""

    stalled = False

    def __init__(self, working: Iterator[bool]) -> None:
        self._working = working
        self.has_work = False

    def step(self) -> list[TokenOutput]:
        self.has_work = next(self._working)
        return []

    def stats(self) -> WorkerStats:
        return WorkerStats()


class FakeConnection:
    """Waits as long as it is asked to, on a clock of its own, and ends the loop after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self.now = 100.0

    def receive(self, wait_ms: int) -> list[ToWorker]:
        self.now += wait_ms / 1000 or 0.01
        self._rounds -= 1
        return [] if self._rounds else [Shutdown()]

    def send(self, message: FromWorker) -> None:
        """Nobody listens."""


@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.parametrize(
    ("working", "times"),
    [
        ([False] * 9, []),
        ([True, True, False, False, False, False], [4]),
        ([True, False, True, False, True, False], []),
        ([True, False, False, True, False, False], [3, 6]),
        ([True] * 300, []),
    ],
)
def test_memory_goes_back_once_after_work(
    monkeypatch: pytest.MonkeyPatch, working: list[bool], times: list[int], low_memory: bool
) -> None:
    """Libraries' pages too, where memory is to be spared."""
    connection, trimmed, released, steps = FakeConnection(len(working) + 1), list[int](), list[int](), 0

    def counted() -> Iterator[bool]:
        nonlocal steps
        for steps, works in enumerate(working, start=1):  # noqa: B007
            yield works

    monkeypatch.setattr(worker, "trim_heap", lambda: trimmed.append(steps))
    monkeypatch.setattr(worker, "release_library_pages", lambda: released.append(steps))
    monkeypatch.setattr(time, "monotonic", lambda: connection.now)
    worker.serve(FakeEngine(counted()), connection, low_memory=low_memory)  # type: ignore[arg-type]
    assert trimmed == times
    assert released == (times if low_memory else [])
