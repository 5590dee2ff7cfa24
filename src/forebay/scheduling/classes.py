"""Four classes of prompts by uncached length, and what a longer class is owed when shorter ones go first. No queue."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence


class LengthClasses:
    """Shorter classes are served first; a class that they pass over earns a share of what they got.

    A class that has earned a whole chunk is owed one: it goes first for that chunk. So a short prompt waits for a
    long one at most when short ones alone fill every step, and a long one always gets on.
    """

    def __init__(self, bounds: Sequence[int], share: float, chunk: int) -> None:
        """Class i holds at most `bounds[i]` uncached tokens; `share` of shorter classes' tokens is earned, up to
        `chunk`."""
        self._bounds = tuple(bounds)
        self._share = share
        self._chunk = chunk
        self._earned = [0.0] * (len(self._bounds) + 1)

    @property
    def count(self) -> int:
        """How many classes there are."""
        return len(self._earned)

    def of(self, uncached: int) -> int:
        """The class of a prompt with this many tokens to compute."""
        return bisect_left(self._bounds, uncached)

    def owed(self, length_class: int) -> bool:
        """Whether the class goes before shorter ones now."""
        return self._earned[length_class] >= self._chunk

    def account(self, served: Sequence[int], waiting: Collection[int]) -> None:
        """A step gave each class its `served` tokens; those in `waiting` had more to compute. Others earn nothing."""
        shorter = 0
        for i, tokens in enumerate(served):
            earned = self._earned[i] + self._share * shorter - tokens
            self._earned[i] = min(max(earned, 0.0), float(self._chunk)) if i in waiting else 0.0
            shorter += tokens
