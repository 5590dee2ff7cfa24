"""Page numbers and who holds them: each page is free, held or cached. Not which tokens a sequence has: see
`book.py`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from forebay.kv.prefix_index import PrefixIndex


class PagePool:
    """Counts holders of each page and evicts pages that only the prefix index names.

    free: holds nothing. held: one or more sequences hold it, or a copy from or to it is not done yet. cached:
    registered and held by nobody; evicted, least recently released first, when no page is free. Sequences release
    their last page first and hold every ancestor of a page that they hold, so a page is evicted before its parent;
    only a page that a background copy kept may come later, and is given up with its parent.

    With `keep`, for models that can resume without the ancestors of a page: only pages named there become cached, the
    others are free once nobody holds them; and a page is evicted alone.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.index = PrefixIndex()
        self.evictions = 0
        self.holders = [0] * total
        """How many sequences hold each page."""
        self.keep: set[int] | None = None
        """Registered pages that are worth caching; None: all are. Pages that become free are taken out here."""
        self._pins: dict[int, int] = {}
        self._moves: dict[int, int] = {}
        self._free = list(range(total - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def free(self) -> int:
        """Pages that hold nothing."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """Pages that only the prefix index names."""
        return len(self._cached)

    @property
    def available(self) -> int:
        """Pages that can be allocated now: free ones and cached ones."""
        return len(self._free) + len(self._cached)

    @property
    def copied(self) -> int:
        """Pages that nobody holds, but that copies keep."""
        return sum(self.holders[number] == 0 for number in self.pinned_numbers())

    def allocate(self) -> int:
        """A page for one new holder. Raises ValueError when none is available."""
        if self._free:
            number = self._free.pop()
        elif self._cached:
            number, _ = self._cached.popitem(last=False)
            self._forget(number)
            self.evictions += 1
        else:
            raise ValueError("no page is free or cached")
        self.holders[number] = 1
        return number

    def hold(self, number: int) -> None:
        """One holder more, of a page that is held or cached."""
        if self.holders[number] == 0:
            self._cached.pop(number, None)
        self.holders[number] += 1

    def release(self, number: int) -> None:
        """One holder less; the last one leaves the page cached when it is registered, else free."""
        if self.holders[number] == 0:
            raise ValueError(f"page {number} is released but nobody holds it")
        self.holders[number] -= 1
        if self.holders[number] == 0 and not self.pinned(number):
            self._retire(number)

    def release_all(self, numbers: Iterable[int]) -> None:
        """`release` for each of these in turn; a long sequence gives up thousands between two steps."""
        if self.keep is not None:
            for number in numbers:
                self.release(number)
            return
        holders, pins, moves, named = self.holders, self._pins, self._moves, self.index.names
        cached, free = self._cached, self._free
        for number in numbers:
            left = holders[number] - 1
            if left < 0:
                raise ValueError(f"page {number} is released but nobody holds it")
            holders[number] = left
            if left or number in pins or number in moves:
                continue
            if number in named:
                cached[number] = None
            else:
                free.append(number)

    def begin_move(self, number: int) -> None:
        """Keep the page until `end_move`, whoever releases it: it is copied from or to in the background."""
        self._moves[number] = self._moves.get(number, 0) + 1
        self._cached.pop(number, None)

    def end_move(self, number: int) -> None:
        """One such copy has ended. Raises KeyError when there is none."""
        self._moves[number] -= 1
        if self._moves[number]:
            return
        del self._moves[number]
        if self.holders[number] == 0 and number not in self._pins:
            self._retire(number)

    def pin(self, number: int) -> None:
        """Keep the page's content until `unpin_all`, whoever releases it: a copy from it is planned."""
        self._pins[number] = self._pins.get(number, 0) + 1

    def pinned(self, number: int) -> bool:
        """Whether a copy from or to the page is under way, so that its last holder does not make it available."""
        return number in self._pins or number in self._moves

    def pinned_numbers(self) -> set[int]:
        """The pages of which `pinned` is true."""
        return {*self._pins, *self._moves}

    def unpin_all(self) -> None:
        """The planned copies are done or dropped."""
        pins, self._pins = self._pins, {}
        for number in pins:
            if self.holders[number] == 0 and number not in self._moves:
                self._retire(number)

    def clear(self) -> None:
        """Every cached page becomes free; nothing can be found in them any more."""
        while self._cached:
            number, _ = self._cached.popitem(last=False)
            self._forget(number)
            self._free.append(number)
            self.evictions += 1

    def _forget(self, number: int) -> None:
        """Drop a page from the index, and what follows it there: nobody holds that, and nobody could find it."""
        following = self.index.drop(number)
        if self.keep is not None:
            self.keep.discard(number)
            return
        while following:
            other = following.pop()
            following |= self.index.drop(other)
            if other in self._cached:
                del self._cached[other]
                self._free.append(other)

    def _retire(self, number: int) -> None:
        named = self.index.has_number(number)
        if named and (self.keep is None or number in self.keep):
            self._cached[number] = None
            return
        if named:
            self._forget(number)
        self._free.append(number)

    def problems(self, counted: dict[int, int]) -> list[str]:
        """Pages whose state is not exactly one, or whose holders are not those `counted` (page number → sequences)."""
        found = []
        free = set(self._free)
        if len(free) != len(self._free):
            found.append("a page is in the free list twice")
        for number in range(self.total):
            held = self.holders[number]
            if held != counted.get(number, 0):
                found.append(f"page {number} counts {held} holders, but {counted.get(number, 0)} sequences hold it")
            states = (number in free) + (number in self._cached) + (held > 0 or self.pinned(number))
            if states != 1:
                found.append(f"page {number} is in {states} states instead of one")
            if number in free and self.index.has_number(number):
                found.append(f"page {number} is free, but registered")
            if number in self._cached and not self.index.has_number(number):
                found.append(f"page {number} is cached, but not registered")
        if self.keep is not None and not self.keep <= self.index.names.keys():
            found.append("a page is to be kept, but not registered")
        return found
