"""The prompts that may get a chunk in one step, in the order in which they are asked. It gives nobody anything."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from forebay.scheduling.sequence import Sequence
from forebay.scheduling.state import State


class Candidates:
    """Within a length class: by effective priority, then arrival. Between classes: by the best priority that was asked
    for in each, then the shorter class first; but a class that is owed a chunk stands before all others of its
    effective priority.

    Prompts in progress count by what is left of them. Between classes priorities do not age, lest a long prompt that
    has waited goes before shorter ones with all of its chunks: what it is owed (`LengthClasses`) grows instead.
    """

    def __init__(self, state: State, in_progress: Iterable[Sequence], now: float) -> None:
        self._state = state
        self._now = now
        self._groups: list[list[tuple[int, tuple[float, int, int], Sequence]]] = [
            [] for _ in range(state.classes.count)
        ]
        self._priorities = [len(self._groups)] * len(self._groups)
        self._asked: set[Sequence] = set()
        for sequence in in_progress:
            self.push(sequence)
        for sequence in state.queue.heads():
            self.push(sequence)

    def push(self, sequence: Sequence) -> None:
        """One candidate more."""
        length_class = self.class_of(sequence)
        heappush(self._groups[length_class], (self._state.level(sequence, self._now), sequence.place, sequence))
        self._priorities[length_class] = min(self._priorities[length_class], sequence.priority)

    def push_head(self, length_class: int, priority: int) -> None:
        """The oldest of a lane of the queue becomes a candidate, if the lane has any."""
        head = self._state.queue.head(length_class, priority)
        if head is not None:
            self.push(head)

    def pop(self) -> Sequence | None:
        """The next one to ask, each once; None when all have been asked."""
        while any(self._groups):
            group = self._groups[min((i for i, group in enumerate(self._groups) if group), key=self._key)]
            sequence = heappop(group)[2]
            if sequence not in self._asked:
                self._asked.add(sequence)
                return sequence
        return None

    def again(self, sequence: Sequence) -> None:
        """Ask this sequence once more, in its place as of now."""
        self._asked.discard(sequence)
        self.push(sequence)

    def class_of(self, sequence: Sequence) -> int:
        """The length class by what is left to compute."""
        return self._state.classes.of(sequence.remaining) if sequence.slots else sequence.length_class

    def _key(self, length_class: int) -> tuple[int, bool, int]:
        if self._state.classes.owed(length_class):
            return self._groups[length_class][0][0], False, length_class
        return self._priorities[length_class], True, length_class
