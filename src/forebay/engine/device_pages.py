"""Where each device page lies in the page store, for the kernels and for the tiers below. Which page holds what is
`kv.KvBook`'s business, and when one moves the scheduler's.

`DevicePages` is a store whose pages lie at their own numbers. `FramedPages` is one in memory that the host pool has in
common: there a page may lie in a frame that the pool refers to as well, and moves to another before it is written to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from forebay.engine.device_memory import allocate_pages
from forebay.fabric import CommonMemory
from forebay.kernels import PAGE_TOKENS, KvLayout
from forebay.kv import pages_for
from forebay.scheduling import Row

CopyPages = Callable[[Tensor, list[tuple[int, int]]], None]
"""Copies whole pages of a store, (source, destination), as kernels do."""

_NOWHERE = -1
_COPYING = 1
"""Frames beside one for each page of device and pool: a page that moves to another has two until it is copied."""


@dataclass(frozen=True, slots=True)
class Places:
    """Page number → place in the store; anything for pages that hold nothing."""

    at: Sequence[int]
    table: Tensor
    """The same, int32 [pages]."""


class DevicePages:
    """A page store [P, L, 2, G * 16 * D] in which page i lies at place i."""

    common: CommonMemory | None = None
    """The memory that a host pool may have in common with the store."""
    places: Places | None = None
    """Where the pages lie; None: at their numbers."""

    def __init__(self, layout: KvLayout, pages: int, copy: CopyPages) -> None:
        """Raises OSError when there is no room for so much in the address space."""
        self.store = allocate_pages(layout, pages)
        self._start = self.store.data_ptr()
        self._page_bytes = layout.page_bytes
        self._copy = copy

    def address(self, number: int) -> int:
        """Where a page's content lies."""
        return self._start + number * self._page_bytes

    def targets(self, numbers: Sequence[int]) -> list[int]:
        """Where new content of these whole pages may be written; what they held is lost."""
        return list(map(self.address, numbers))

    def landed(self, numbers: Sequence[int], addresses: Sequence[int]) -> None:
        """A load has left these pages there."""

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole pages (source, destination); no page is both."""
        if pairs:
            self._copy(self.store, [*pairs])

    def own(self, rows: Iterable[Row]) -> None:
        """The pages that these rows write to must be the device's alone from now on."""

    def frames(self) -> list[int] | None:
        """The frames that pages refer to; None where there are none."""
        return None


class FramedPages(DevicePages):
    """A page store in memory that a host pool of `slots` slots has in common.

    A page has a frame from the first time that it is written to, or a load leaves it in one. One thread calls it.
    """

    common: CommonMemory

    def __init__(self, layout: KvLayout, pages: int, slots: int, copy: CopyPages) -> None:
        total = pages + slots + _COPYING
        super().__init__(layout, total, copy)
        self.common = CommonMemory(self._start, layout.page_bytes, total)
        self._frames = [_NOWHERE] * pages
        self._table = np.zeros(pages, np.int32)
        self.places = Places(self._frames, torch.from_numpy(self._table))

    def address(self, number: int) -> int:
        """Where a page's content lies. Raises ValueError when it never had any."""
        return self.common.address(self._frame(number))

    def targets(self, numbers: Sequence[int]) -> list[int]:
        """Where new content of these whole pages may be written; what they held is lost."""
        lacking = [number for number in numbers if not self._owns(number)]
        if lacking:
            left = [frame for number in lacking if (frame := self._frames[number]) != _NOWHERE]
            self.common.drop(left)
            self._refer(lacking, self.common.take(len(lacking)))
        return list(map(self.address, numbers))

    def landed(self, numbers: Sequence[int], addresses: Sequence[int]) -> None:
        """A load has left these pages there, and the frames to them in place of their own."""
        self._refer(numbers, list(map(self.common.frame, addresses)))

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole pages (source, destination); no page is both."""
        self.targets([destination for _, destination in pairs])
        super().copy([(self._frame(source), self._frame(destination)) for source, destination in pairs])

    def own(self, rows: Iterable[Row]) -> None:
        """The pages that these rows write to must be the device's alone from now on.

        One that the pool refers to as well moves to a frame of its own: with its content where it goes on behind it,
        as a partly filled page does that came back from the pool.
        """
        for row in rows:
            first, end = row.start // PAGE_TOKENS, pages_for(row.start + row.tokens)
            numbers = row.sequence.pages.numbers[first:end]
            if all(map(self._owns, numbers)):
                continue
            if row.start % PAGE_TOKENS:
                self._keep_and_own(numbers.pop(0))
            self.targets(numbers)

    def frames(self) -> list[int]:
        """The frames that pages refer to; right while no load is under way."""
        return [frame for frame in self._frames if frame != _NOWHERE]

    def _keep_and_own(self, number: int) -> None:
        frame = self._frame(number)
        if self.common.shared(frame):
            taken = self.common.take(1)
            self._copy(self.store, [(frame, taken[0])])
            self._refer([number], taken)
            self.common.drop([frame])

    def _owns(self, number: int) -> bool:
        frame = self._frames[number]
        return frame != _NOWHERE and not self.common.shared(frame)

    def _frame(self, number: int) -> int:
        frame = self._frames[number]
        if frame == _NOWHERE:
            raise ValueError(f"device page {number} holds nothing")
        return frame

    def _refer(self, numbers: Sequence[int], frames: Sequence[int]) -> None:
        for number, frame in zip(numbers, frames, strict=True):
            self._frames[number] = frame
        self._table[numbers] = frames
