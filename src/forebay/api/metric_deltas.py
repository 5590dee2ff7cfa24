"""A worker's counters, which count from its start, added to ones that must not go back when a worker is replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from forebay.core.messages import WorkerStats


class Increases(Protocol):
    """A counter."""

    def inc(self, amount: float = 1) -> None:
        """Add an amount."""


class CounterDeltas:
    """Adds what each field of `WorkerStats` grew by since the last message to the counters named for it."""

    def __init__(self, counters: Mapping[str, Sequence[Increases]]) -> None:
        self._counters = counters
        self._last: dict[str, float] = dict.fromkeys(counters, 0.0)

    def add(self, stats: WorkerStats) -> None:
        """Take one message. A value below the last one is a new worker's, and counts from zero."""
        for name, counters in self._counters.items():
            value: float = getattr(stats, name)
            last = self._last[name]
            self._last[name] = value
            for counter in counters:
                counter.inc(value - last if value >= last else value)
