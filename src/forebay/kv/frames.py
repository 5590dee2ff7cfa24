"""Frames: the places in one memory in which pages of several tiers lie, and how many page numbers refer to each.

A frame is to a page number what a physical page is to a virtual address. Numbers only; no byte is touched here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Frames:
    """Counts who refers to each frame; a frame is free when nobody does.

    The frame that became free last is taken first, and one that was never taken only when there is no other: no more of
    the memory is touched than was referred to at one time.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.holders: list[int] = []
        """How many refer to each frame, up to the last that was ever taken."""
        self._freed: list[int] = []

    @property
    def free(self) -> int:
        """Frames that nobody refers to."""
        return self.total - len(self.holders) + len(self._freed)

    def take(self) -> int:
        """A free frame, for one who refers to it. Raises ValueError when none is free."""
        if self._freed:
            frame = self._freed.pop()
            self.holders[frame] = 1
            return frame
        if len(self.holders) == self.total:
            raise ValueError(f"all {self.total} frames are referred to")
        self.holders.append(1)
        return len(self.holders) - 1

    def hold(self, frame: int) -> None:
        """One more refers to a frame. Raises ValueError when nobody did: its content may be anything."""
        self._require_held(frame)
        self.holders[frame] += 1

    def drop(self, frame: int) -> None:
        """One less refers to a frame; the last one frees it. Raises ValueError when nobody did."""
        self._require_held(frame)
        self.holders[frame] -= 1
        if not self.holders[frame]:
            self._freed.append(frame)

    def problems(self, referred: Iterable[int]) -> list[str]:
        """What is wrong, given the frame of everyone who refers to one; empty when all is well."""
        counted = Counter(referred)
        found = [
            f"frame {frame} counts {holders} holders, but {counted[frame]} refer to it"
            for frame, holders in enumerate(self.holders)
            if holders != counted[frame]
        ]
        if sorted(self._freed) != [frame for frame, holders in enumerate(self.holders) if not holders]:
            found.append("the free frames are not those that nobody refers to")
        return found

    def _require_held(self, frame: int) -> None:
        if not (0 <= frame < len(self.holders) and self.holders[frame]):
            raise ValueError(f"frame {frame} is free")
