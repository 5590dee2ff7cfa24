"""Sequences that wait: one lane for each length class and priority, oldest first. It decides nothing between lanes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import attrgetter

from forebay.core.request import Priority
from forebay.scheduling.sequence import Sequence

_PLACE = attrgetter("place")


class WaitingQueue:
    """Within a lane the order is that of arrival, also for sequences that come back after preemption.

    Not bounded itself: `Scheduler.add` refuses new requests at `max_waiting`, and what was once admitted always finds
    room.
    """

    def __init__(self, classes: int) -> None:
        self._lanes: list[list[list[Sequence]]] = [[[] for _ in Priority] for _ in range(classes)]
        self._size = 0
        self.tokens = 0
        """Uncached tokens of all that wait, as of when each came."""

    def __len__(self) -> int:
        return self._size

    def push(self, sequence: Sequence, length_class: int, uncached: int) -> None:
        """Put a sequence into its lane, at its place by arrival."""
        sequence.length_class, sequence.uncached = length_class, uncached
        insort(self._lane(sequence), sequence, key=_PLACE)
        self._size += 1
        self.tokens += uncached

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out. Raises ValueError when it does not wait."""
        lane = self._lane(sequence)
        at = bisect_left(lane, sequence.place, key=_PLACE)
        if at == len(lane) or lane[at] is not sequence:
            raise ValueError(f"sequence {sequence.request_id} does not wait")
        del lane[at]
        self._size -= 1
        self.tokens -= sequence.uncached

    def heads(self) -> Iterator[Sequence]:
        """The oldest of each lane."""
        if self._size:
            for lanes in self._lanes:
                for lane in lanes:
                    if lane:
                        yield lane[0]

    def head(self, length_class: int, priority: int) -> Sequence | None:
        """The oldest of one lane."""
        lane = self._lanes[length_class][priority]
        return lane[0] if lane else None

    def counts(self) -> list[int]:
        """Waiting sequences in each class."""
        return [sum(map(len, lanes)) for lanes in self._lanes]

    def _lane(self, sequence: Sequence) -> list[Sequence]:
        return self._lanes[sequence.length_class][sequence.priority]
