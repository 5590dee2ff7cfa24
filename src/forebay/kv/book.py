"""The book of KV pages: the one place where pages get owners, identities and new owners. It plans copies, it makes
none."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import eq

from forebay.kv.book_check import problems_of
from forebay.kv.identity import PAGE_TOKENS
from forebay.kv.pages import PagePool
from forebay.kv.sequence_pages import SequencePages, pages_for
from forebay.kv.units import ResumePolicy


class KvBook:
    """Allocation, prefix reuse, copy on write and release of pages, for all sequences of one worker.

    A full page is registered under its id once its KV is really there (`commit`). If the id is registered already,
    the sequence moves to that page and gives up its own: this happens between steps, when no kernel reads a page, and
    keeps every content stored once. Hence a sequence that holds a registered page holds its registered ancestors too.

    `WindowBook` is the same for models whose attention has a window everywhere.
    """

    policy: ResumePolicy | None = None
    """Where a prefix can be resumed; None: at the end of any page, if all pages before it are there."""

    def __init__(self, num_pages: int, prefix_cache: bool = True) -> None:
        """`num_pages` pages; without `prefix_cache` nothing is registered, and pages are shared by `fork` only."""
        if num_pages < 1:
            raise ValueError(f"a book needs at least one page, not {num_pages}")
        self.prefix_cache = prefix_cache
        self._pool = PagePool(num_pages)
        self._holding: dict[SequencePages, None] = {}
        self._roots: set[bytes] = set()

    @property
    def total(self) -> int:
        """All pages."""
        return self._pool.total

    @property
    def free(self) -> int:
        """Pages that hold nothing."""
        return self._pool.free

    @property
    def cached(self) -> int:
        """Pages that only the prefix cache holds; they are given up when room is wanted."""
        return self._pool.cached

    @property
    def used(self) -> int:
        """Pages held by live sequences; those that only copies keep are neither used nor available."""
        return self.total - self._pool.available - self._pool.copied

    @property
    def available(self) -> int:
        """Pages that can be allocated now: free and cached."""
        return self._pool.available

    @property
    def evictions(self) -> int:
        """Cached pages given up since the start."""
        return self._pool.evictions

    def open(self, root: bytes, *, reuse: bool = True, public: int = 0, public_root: bytes = b"") -> SequencePages:
        """The pages of a new sequence: none yet. `reuse` False keeps it from taking pages out of the prefix cache.

        Its first `public` pages are everybody's, under `public_root`.
        """
        self._roots.update((root, public_root) if public else (root,))
        return SequencePages(root, reuse, public, public_root if public else b"")

    def cached_tokens(self, pages: SequencePages, tokens: Sequence[int]) -> int:
        """How many leading `tokens` `match_prefix` would find now; takes nothing. At least one token is always left."""
        return self._lookup(pages, tokens) * PAGE_TOKENS

    def most_pages(self, tokens: int) -> int:
        """How many pages a sequence of so many tokens holds at most."""
        return pages_for(tokens)

    def first_end(self, pages: SequencePages, tokens: int) -> int:
        """How many of a sequence's `tokens` tokens are to get pages when it begins, once its prefix is matched."""
        del pages
        return tokens

    def expect(self, pages: SequencePages, prompt: Sequence[int]) -> None:
        """A sequence with this prompt is about to be computed, or to go on: what of it will be worth keeping."""

    def match_prefix(self, pages: SequencePages, tokens: Sequence[int], point: int | None = None) -> int:
        """Take the leading pages of `tokens` (all of the sequence's ids) that are registered; returns how many tokens
        they hold.

        The last token is never covered, since its logits are wanted: a prompt of full cached pages loses its last
        page and computes it again into a page of its own. `point` is for models with a window (`WindowBook`). Raises
        ValueError when the sequence holds pages already.
        """
        del point
        if pages.numbers:
            raise ValueError("a prefix can only be matched before the sequence holds pages")
        hits = self._lookup(pages, tokens)
        for page in pages.ids[:hits]:
            number = self._number(page)
            self._pool.hold(number)
            pages.numbers.append(number)
        pages.registered = hits
        if hits:
            self._holding[pages] = None
        return hits * PAGE_TOKENS

    def fits(self, pages: SequencePages, tokens: Sequence[int], spare: int = 0, point: int | None = None) -> bool:
        """Whether a sequence that holds nothing could match (at `point`) and hold all of `tokens` now, with `spare`
        pages left over."""
        del point
        return self._pool.available >= pages_for(len(tokens)) - self._held(pages, tokens) + spare

    def held_prefix(self, pages: SequencePages, tokens: Sequence[int], point: int | None = None) -> list[int]:
        """The pages that `match_prefix` (at `point`) would take now and that someone holds already."""
        del point
        return [self._number(page) for page in pages.ids[: self._held(pages, tokens)]]

    def _held(self, pages: SequencePages, tokens: Sequence[int]) -> int:
        hits, holders = self._lookup(pages, tokens), self._pool.holders
        # Ancestors are held by at least as many as their children: the hits that someone holds come first.
        return bisect_left(range(hits), True, key=lambda i: holders[self._number(pages.ids[i])] == 0)

    def missing_page(self, pages: SequencePages, tokens: Sequence[int]) -> bytes | None:
        """The id of the first page that a match of `tokens` would not find; None when it would find all that it may
        take."""
        if not (self.prefix_cache and pages.reuse):
            return None
        hits = self._lookup(pages, tokens)
        return pages.id_at(hits, tokens) if hits < (len(tokens) - 1) // PAGE_TOKENS else None

    def next_page(self, pages: SequencePages, tokens: Sequence[int], end: int) -> bytes | None:
        """The id of the first page that a sequence would register once `end` of its tokens are computed; None if it
        has none."""
        if not self.prefix_cache or pages.registered >= end // PAGE_TOKENS:
            return None
        return pages.id_at(pages.registered, tokens)

    def missing(self, pages: SequencePages, end: int) -> int:
        """How many pages more than are available it takes to hold `end` tokens (0 or less: they fit)."""
        return pages_for(end) - len(pages.numbers) - self._pool.available

    def short(self, pages: SequencePages, start: int, end: int) -> int:
        """How many pages `grow` lacks for the same tokens (0 or less: none)."""
        numbers = pages.numbers
        shared = sum(not self._own(number) for number in numbers[start // PAGE_TOKENS : pages_for(end)])
        return shared + max(0, pages_for(end) - len(numbers)) - self._pool.available

    def ready(self, pages: SequencePages, start: int, end: int) -> bool:
        """Whether tokens [start, end) all lie in the sequence's last page, which it may write to as it is."""
        last = len(pages.numbers) - 1
        return start // PAGE_TOKENS == (end - 1) // PAGE_TOKENS == last and self._own(pages.numbers[last])

    def grow(self, pages: SequencePages, start: int, end: int) -> list[tuple[int, int]] | None:
        """Make tokens [start, end) writable: new pages, and copies of pages that someone else sees too.

        Returns the page copies (source, destination) to make before writing, or None, with nothing changed, when
        there is no room. A source keeps its content until `settle`. Raises ValueError when `start` lies in a
        registered page or beyond the pages held.
        """
        numbers, pool = pages.numbers, self._pool
        first, last = start // PAGE_TOKENS, pages_for(end)
        if not pages.registered <= first <= len(numbers):
            raise ValueError(
                f"token {start} can't be written: {pages.registered} of {len(numbers)} pages are registered"
            )
        shared = [i for i in range(first, min(last, len(numbers))) if not self._own(numbers[i])]
        if len(shared) + max(0, last - len(numbers)) > pool.available:
            return None
        copies = [self._replace(pages, i) for i in shared]
        numbers.extend(pool.allocate() for _ in range(last - len(numbers)))
        self._holding[pages] = None
        return copies

    def clear(self) -> None:
        """Give up all cached pages: the prefix cache keeps only what sequences hold or background copies read."""
        self._pool.clear()

    def begin_moves(self, numbers: Iterable[int]) -> None:
        """Pages are copied from or to in the background: they are not given out before `end_moves`, and a page held
        by nobody else is not available meanwhile."""
        for number in numbers:
            self._pool.begin_move(number)

    def end_moves(self, numbers: Iterable[int]) -> None:
        """Those copies have ended. Raises KeyError for a page without one."""
        for number in numbers:
            self._pool.end_move(number)

    def number_of(self, page: bytes) -> int | None:
        """Where the registered page of this id lies, or None."""
        return self._pool.index.number(page)

    def settle(self) -> None:
        """The copies that `grow` asked for are made or dropped: their sources may go."""
        self._pool.unpin_all()

    def commit(self, pages: SequencePages, tokens: Sequence[int], computed: int) -> Sequence[int]:
        """The KV of the first `computed` tokens is written: register the pages that became full. Returns which pages of
        the sequence are worth storing from now on.

        To be called between steps only, since the sequence may move to an equal page that is registered already.
        """
        if not self.prefix_cache:
            return ()
        full = range(pages.registered, computed // PAGE_TOKENS)
        for i in full:
            self._register(pages, i, pages.id_at(i, tokens))
            pages.registered = i + 1
        return full

    def slide(self, pages: SequencePages, computed: int) -> None:
        """Give up pages that no token from `computed` on sees: none, where attention has no window."""

    def ending(self, pages: SequencePages) -> Sequence[int]:
        """Pages of a sequence that ends now which are worth storing for that reason, beside those of `commit`."""
        del pages
        return ()

    def fork(self, pages: SequencePages, computed: int) -> SequencePages:
        """Another sequence with the same first `computed` tokens: it shares their pages, the last one until either
        writes to it.

        Raises ValueError when the full pages among them are not committed.
        """
        if self.prefix_cache and pages.registered != computed // PAGE_TOKENS:
            raise ValueError(f"{computed} tokens are to be shared, but only {pages.registered} pages are committed")
        full = computed // PAGE_TOKENS
        numbers, ids = pages.numbers[: pages_for(computed)], pages.ids[:full]
        twin = replace(pages, reuse=True, numbers=numbers, ids=ids, hits=0, points=[*pages.points])
        for number in self._numbers(twin):
            self._pool.hold(number)
        self._holding[twin] = None
        return twin

    def release(self, pages: SequencePages) -> None:
        """The sequence gives up all its pages, last first; registered ones stay cached while there is room."""
        self._pool.release_all(reversed(pages.numbers))
        pages.hits = max(pages.hits, pages.registered)
        pages.numbers.clear()
        pages.registered = 0
        self._holding.pop(pages, None)

    def freed_by(self, pages: SequencePages, seen: Counter[int]) -> int:
        """How many pages would become available if this sequence released its own after those counted in `seen` did.

        Adds its holds to `seen`; takes nothing away. O(pages of the sequence).
        """
        numbers, holders = self._numbers(pages), self._pool.holders
        seen.update(numbers)
        freed = sum(map(eq, map(seen.__getitem__, numbers), map(holders.__getitem__, numbers)))
        kept = self._pool.pinned_numbers().intersection(numbers)
        return int(freed) - sum(seen[number] == holders[number] for number in kept)

    def check(self) -> list[str]:
        """Recount everything: each page in one state, holders as many as sequences hold it, ids consistent. Empty
        when well."""
        roots = self._roots if self.policy is None else None
        return problems_of(self._pool, roots, {pages: self._numbers(pages) for pages in self._holding})

    def _numbers(self, pages: SequencePages) -> Sequence[int]:
        """The pages that the sequence holds."""
        return pages.numbers

    def _lookup(self, pages: SequencePages, tokens: Sequence[int]) -> int:
        """Leading registered pages, leaving a token. A page's parent is registered too, so only the end of the run is
        tested."""
        if not (self.prefix_cache and pages.reuse):
            return 0
        index = self._pool.index
        limit = (len(tokens) - 1) // PAGE_TOKENS
        hits = min(pages.hits, limit)
        while hits and not index.has_id(pages.ids[hits - 1]):
            hits -= 1
        while hits < limit and index.has_id(pages.id_at(hits, tokens)):
            hits += 1
        pages.hits = hits
        return hits

    def _number(self, page: bytes) -> int:
        number = self._pool.index.number(page)
        if number is None:
            raise KeyError(f"page id {page.hex()} is not registered")
        return number

    def _own(self, number: int) -> bool:
        """Whether the one who holds the page may write to it: nobody else holds it and the index does not name it."""
        return self._pool.holders[number] == 1 and not self._pool.index.has_number(number)

    def _replace(self, pages: SequencePages, i: int) -> tuple[int, int]:
        source = pages.numbers[i]
        pages.numbers[i] = self._pool.allocate()
        self._pool.pin(source)
        self._pool.release(source)
        return source, pages.numbers[i]

    def _register(self, pages: SequencePages, i: int, page: bytes) -> None:
        own, known = pages.numbers[i], self._pool.index.number(page)
        if known is None:
            self._pool.index.add(page, pages.parent(i), own)
        elif known != own:
            self._pool.hold(known)
            pages.numbers[i] = known
            self._pool.release(own)
