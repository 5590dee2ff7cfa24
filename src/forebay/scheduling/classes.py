"""Classes of prompts by uncached length, and what a class is owed when others go before it. No queue, no sequences."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence


class LengthClasses:
    """Shorter classes are served first; a class that is passed over earns a share of what the others get.

    It earns only from chunks of the same or a lower effective priority than its own. A class that has earned a whole
    chunk is owed one and goes first for that chunk. So a short prompt waits for a long one at most when short ones
    alone fill every step, and a long one always gets on.
    """

    def __init__(self, bounds: Sequence[int], share: float, chunk: int) -> None:
        """Class i holds at most `bounds[i]` uncached tokens; `share` of other classes' tokens is earned, up to
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

    def account(self, served: Iterable[tuple[int, int, int]], waiting: Mapping[int, int]) -> None:
        """A step is planned: `served` are its chunks as (class, effective priority, tokens).

        `waiting` has, for each class with more to compute, the best effective priority there; other classes earn
        nothing.
        """
        chunks = list(served)
        for i in range(self.count):
            level = waiting.get(i)
            if level is None:
                self._earned[i] = 0.0
                continue
            others = sum(tokens for other, theirs, tokens in chunks if other != i and theirs >= level)
            own = sum(tokens for other, _, tokens in chunks if other == i)
            self._earned[i] = min(max(self._earned[i] + self._share * others - own, 0.0), float(self._chunk))
