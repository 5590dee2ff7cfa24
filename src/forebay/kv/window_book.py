"""The book of KV pages for models whose attention has a window in every layer. Which points are kept: see `units.py`.

A sequence holds the pages that its next token sees, and gives up the others as it gets on. A page stays cached without
its ancestors, and only if it belongs to a unit: the pages that going on from some point takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from forebay.kv.book import KvBook
from forebay.kv.identity import PAGE_TOKENS
from forebay.kv.sequence_pages import NO_PAGE, SequencePages, pages_for
from forebay.kv.units import CommonPrefixes, ResumePolicy


class WindowBook(KvBook):
    """`KvBook` for which a prefix of any length takes a bounded number of pages.

    Pages of common prefixes, fixed intervals and the end of the input are kept as they are computed, those of the
    output's end when the sequence ends, or is put back. Cached pages go least recently given up first, of a sequence
    the earliest ones first: what is left of a unit then is of use for later points only.
    """

    def __init__(self, num_pages: int, policy: ResumePolicy, chunk: int, prefix_cache: bool = True) -> None:
        """`chunk` is the most tokens that one step computes of a sequence: a sequence holds a window and so much."""
        super().__init__(num_pages, prefix_cache)
        self.policy: ResumePolicy = policy
        self._span = pages_for(policy.window - 1 + chunk) + 1
        self._keep: set[int] = set()
        self._pool.keep = self._keep
        self._common = CommonPrefixes()

    def most_pages(self, tokens: int) -> int:
        """How many pages a sequence of so many tokens holds at most."""
        return min(pages_for(tokens), self._span)

    def first_end(self, pages: SequencePages, tokens: int) -> int:
        """How many of a sequence's `tokens` tokens get pages when it begins: a window and a chunk, so that from then on
        it gives up as many as it takes."""
        return min(tokens, (pages.start + self._span) * PAGE_TOKENS)

    def expect(self, pages: SequencePages, prompt: Sequence[int]) -> None:
        """Note the points of a prompt that is about to be computed, among them those where others were seen to part
        from it. Once a sequence: the second time tells nothing new."""
        if not self.prefix_cache or pages.expected:
            return
        pages.expected = True
        full = len(prompt) // PAGE_TOKENS
        if full:
            pages.id_at(full - 1, prompt)
        common = self._common.see(pages.parent(0), pages.ids[:full])
        pages.points = self.policy.points(len(prompt), len(prompt), common)

    def match_prefix(self, pages: SequencePages, tokens: Sequence[int], point: int | None = None) -> int:
        """Take what is registered of the pages that going on from `point` takes, or from the last point at which all of
        them are; returns the point, rounded down to a page.

        Pages that are not registered are left to `grow`, and their content to the caller. Raises ValueError when the
        sequence holds pages already.
        """
        if pages.numbers:
            raise ValueError("a prefix can only be matched before the sequence holds pages")
        end = self._lookup(pages, tokens) if point is None else point // PAGE_TOKENS
        needed = self._needed(end)
        numbers = [self._pool.index.number(pages.id_at(i, tokens)) for i in needed]
        pages.start = needed.start
        pages.numbers = [NO_PAGE] * needed.start + [NO_PAGE if number is None else number for number in numbers]
        pages.registered = needed.start + numbers.index(None) if None in numbers else end
        held = pages.held
        for number in held:
            self._pool.hold(number)
        if held:
            self._holding[pages] = None
        return end * PAGE_TOKENS

    def fits(self, pages: SequencePages, tokens: Sequence[int], spare: int = 0, point: int | None = None) -> bool:
        """Whether a sequence that holds nothing could match at `point` and get its first pages now, with `spare` pages
        left over."""
        needed = self._needed(self._lookup(pages, tokens) if point is None else point // PAGE_TOKENS)
        wanted = min(pages_for(len(tokens)) - needed.start, self._span)
        return self._pool.available >= wanted - len(self.held_prefix(pages, tokens, point)) + spare

    def held_prefix(self, pages: SequencePages, tokens: Sequence[int], point: int | None = None) -> list[int]:
        """The pages that `match_prefix` at `point` would take now and that someone holds already."""
        needed = self._needed(self._lookup(pages, tokens) if point is None else point // PAGE_TOKENS)
        found = (self._pool.index.number(pages.id_at(i, tokens)) for i in needed)
        return [number for number in found if number is not None and self._pool.holders[number]]

    def missing(self, pages: SequencePages, end: int) -> int:
        """How many pages more than are available it takes to begin with `end` tokens (0 or less: they fit)."""
        wanted = pages_for(self.first_end(pages, end)) - pages.start
        return wanted - len(pages.held) - self._pool.available

    def grow(self, pages: SequencePages, start: int, end: int) -> list[tuple[int, int]] | None:
        """As `KvBook.grow`; after `match_prefix` also pages for what it did not find."""
        numbers = pages.numbers
        unsure = range(max(pages.start, pages.registered), start // PAGE_TOKENS)
        lacking = [i for i in unsure if numbers[i] == NO_PAGE]
        if len(lacking) + max(0, pages_for(end) - len(numbers)) > self._pool.available:
            return None
        for i in lacking:
            numbers[i] = self._pool.allocate()
        return super().grow(pages, start, end)

    def commit(self, pages: SequencePages, tokens: Sequence[int], computed: int) -> Sequence[int]:
        """As `KvBook.commit`; what is worth storing are the pages of points that are reached now."""
        super().commit(pages, tokens, computed)
        reached = sum(point <= pages.registered * PAGE_TOKENS for point in islice(pages.points, 8))
        if not reached:
            return ()
        points, pages.points = pages.points[:reached], pages.points[reached:]
        # A point before the one that the sequence was resumed from is not whole here.
        whole = [point for point in points if self.policy.pages_for(point).start >= pages.start]
        return self._want(pages, self.policy.keep(whole))

    def slide(self, pages: SequencePages, computed: int) -> None:
        """Give up the pages that no token from the last page border on sees: from there a sequence that leaves is found
        again, which may take one page more than its next token does.
        """
        first = self.policy.first_page(computed // PAGE_TOKENS * PAGE_TOKENS)
        if first <= pages.start:
            return
        gone = pages.numbers[pages.start : first]
        pages.numbers[pages.start : first] = [NO_PAGE] * len(gone)
        pages.start = first
        self._pool.release_all(gone)

    def ending(self, pages: SequencePages) -> Sequence[int]:
        """The pages that going on from the end of a sequence takes."""
        return self._want(pages, self._needed(pages.registered))

    def release(self, pages: SequencePages) -> None:
        """The sequence gives up all its pages, first ones first; those that going on from its end takes stay cached
        while there is room."""
        self.ending(pages)
        self._pool.release_all(pages.held)
        pages.numbers.clear()
        pages.registered = pages.start = 0
        self._holding.pop(pages, None)

    def _needed(self, end: int) -> range:
        """The pages that going on after page `end` - 1 reads."""
        return self.policy.pages_for(end * PAGE_TOKENS)

    def _want(self, pages: SequencePages, wanted: Sequence[int]) -> list[int]:
        """Keep these pages of the sequence, as far as it holds them; returns those that nobody wanted before."""
        numbers = pages.numbers
        new = [i for i in wanted if pages.start <= i < pages.registered and numbers[i] not in self._keep]
        self._keep.update(numbers[i] for i in new)
        return new

    def _lookup(self, pages: SequencePages, tokens: Sequence[int]) -> int:
        """The pages before the last point at which all that is needed is registered, leaving a token."""
        if not (self.prefix_cache and pages.reuse):
            return 0
        limit, has = (len(tokens) - 1) // PAGE_TOKENS, self._pool.index.has_id
        return self.policy.resume_at(limit, lambda i: has(pages.id_at(i, tokens))) // PAGE_TOKENS

    def _numbers(self, pages: SequencePages) -> Sequence[int]:
        return pages.held
