"""Which stored page is worth least, for tiers that must make room. Scores and order only: nothing is dropped here.

A page is worth the tokens that it saves per byte: twice that once it was used again, half with every half-life that
it lies unused. The logarithm of that value falls at the same rate for all pages, so a page's score can be written as a
time, `last use + half-life * log2(weight)`, which needs no update as time goes by.

That a page was used again tells a prefix that others share, or a conversation that goes on, from a prompt that nobody
repeats. How often says little more: the longest conversations have the most uses, and are the nearest to their end.
Depth is left out for the same reason, though deep pages take longer to compute. Decision 12 has the figures.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log2

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Worth:
    """Turns what is known of a page into a score; the page with the lowest one goes first."""

    half_life_s: float
    """How long unused a page has to lie until it is worth half; about a tenth of the time that a tier takes to fill."""

    def score(self, last_use: float, uses: int, size: int) -> float:
        """A full page of `size` bytes, used `uses` times since it was stored, last at `last_use` s."""
        weight = (2 if uses else 1) * _MIB / size
        return last_use + self.half_life_s * log2(weight)


@dataclass(slots=True)
class _Entry:
    parent: bytes
    tenant: str
    score: float
    holds: int = 0
    queued: float | None = None
    """The score under which the page is in the heap, None when it is not (or only under an older one)."""


class ValueOrder:
    """Pages by score, least valuable first, among those that may go: not held, and no page here continues them.

    A prefix is only readable from its start, so it must be given up from its end. Every operation takes O(log pages).
    """

    def __init__(self) -> None:
        self.held = 0
        """How many pages are held."""
        self._held_of: dict[str, int] = {}
        self._entries: dict[bytes, _Entry] = {}
        self._children: dict[bytes, int] = {}
        self._heaps: dict[str, list[tuple[float, bytes]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, page: bytes) -> bool:
        return page in self._entries

    def add(self, page: bytes, parent: bytes, tenant: str, score: float) -> None:
        """A page is here now. Its parent may be missing, or come later. Raises ValueError when it is here already."""
        self.add_all([(page, parent, tenant, score)])

    def add_all(self, pages: Sequence[tuple[bytes, bytes, str, float]]) -> None:
        """`add` for many pages (id, parent, tenant, score): those that have children among them cost little."""
        entries, children = self._entries, self._children
        for page, parent, tenant, score in pages:
            if page in entries:
                raise ValueError(f"page {page.hex()} is in the order already")
            entries[page] = _Entry(parent, tenant, score)
            children[parent] = children.get(parent, 0) + 1
        for page, _, _, _ in pages:
            if page not in children:
                self._queue(page)

    def rescore(self, page: bytes, score: float) -> None:
        """The page was used, or is worth something else for another reason."""
        self._entries[page].score = score
        self._queue(page)

    def hold(self, page: bytes) -> None:
        """The page must stay until `release` was called as often as `hold`."""
        self.hold_all([page])

    def hold_all(self, pages: Iterable[bytes]) -> None:
        """`hold` for each."""
        entries = self._entries
        for page in pages:
            entry = entries[page]
            if not entry.holds:
                self._count_held(entry, 1)
            entry.holds += 1

    def release_all(self, pages: Iterable[bytes]) -> None:
        """`release` for each."""
        entries, children = self._entries, self._children
        for page in pages:
            entry = entries[page]
            if not entry.holds:
                raise ValueError(f"page {page.hex()} is not held")
            entry.holds -= 1
            if not entry.holds:
                self._count_held(entry, -1)
                if page not in children:
                    self._queue(page)

    def release(self, page: bytes) -> None:
        """One hold less. Raises ValueError when there is none."""
        self.release_all([page])

    def remove(self, page: bytes) -> None:
        """The page is gone, whether it was free to go or not."""
        entry = self._entries.pop(page)
        if entry.holds:
            self._count_held(entry, -1)
        parent = entry.parent
        left = self._children[parent] - 1
        if left:
            self._children[parent] = left
        else:
            del self._children[parent]
            if parent in self._entries:
                self._queue(parent)

    def held_of(self, tenant: str) -> int:
        """How many pages of a tenant are held."""
        return self._held_of.get(tenant, 0)

    def least(self, tenant: str | None = None) -> bytes | None:
        """The least valuable page that may go, of this tenant or of all; None when there is none. It stays here."""
        tenants = list(self._heaps) if tenant is None else [tenant]
        tops = [top for name in tenants if (top := self._top(name)) is not None]
        return min(tops)[1] if tops else None

    def _count_held(self, entry: _Entry, change: int) -> None:
        self.held += change
        of_tenant = self._held_of.get(entry.tenant, 0) + change
        if of_tenant:
            self._held_of[entry.tenant] = of_tenant
        else:
            del self._held_of[entry.tenant]

    def _may_go(self, page: bytes) -> bool:
        return not self._entries[page].holds and page not in self._children

    def _queue(self, page: bytes) -> None:
        entry = self._entries[page]
        if entry.queued == entry.score or not self._may_go(page):
            return
        entry.queued = entry.score
        heap = self._heaps.setdefault(entry.tenant, [])
        heapq.heappush(heap, (entry.score, page))
        if len(heap) > 2 * len(self._entries) + 64:
            heap[:] = [item for item in heap if self._current(item)]
            heapq.heapify(heap)

    def _current(self, item: tuple[float, bytes]) -> bool:
        entry = self._entries.get(item[1])
        return entry is not None and entry.queued == item[0] == entry.score

    def _top(self, tenant: str) -> tuple[float, bytes] | None:
        """The tenant's first item that still says the truth; others are dropped on the way."""
        heap = self._heaps.get(tenant, [])
        while heap:
            item = heap[0]
            if self._current(item):
                if self._may_go(item[1]):
                    return item
                self._entries[item[1]].queued = None
            heapq.heappop(heap)
        self._heaps.pop(tenant, None)
        return None
