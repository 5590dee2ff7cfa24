"""Pages of models with a window: bounded while a sequence runs, kept at points only, found again from any tier.

The machine keeps, beside the book, what a page store and a lower tier would hold: for each slot the whole prefix up to
that token. What a sequence's next token sees must be its own tokens, wherever they came from.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.kv import PAGE_TOKENS, ResumePolicy, SequencePages, WindowBook, page_root

ROOT = page_root("m", "a")
Content = tuple[str, tuple[int, ...]]


def book(pages: int = 40, window: int = 48, chunk: int = 32, interval: int = 160) -> WindowBook:
    return WindowBook(pages, ResumePolicy(window, interval), chunk)


def begin(book: WindowBook, tokens: list[int]) -> tuple[SequencePages, int]:
    """A sequence that has its first pages; and how many of its tokens were found."""
    pages = book.open(ROOT)
    found = book.match_prefix(pages, tokens)
    book.expect(pages, tokens)
    assert book.grow(pages, found, book.first_end(pages, len(tokens))) == []
    return pages, found


def compute(book: WindowBook, pages: SequencePages, tokens: list[int], start: int, chunk: int = 32) -> list[int]:
    """Compute the rest in chunks; returns the pages that were to be stored meanwhile."""
    stored: list[int] = []
    for at in range(start, len(tokens), chunk):
        end = min(len(tokens), at + chunk)
        assert book.grow(pages, at, end) == []
        stored += book.commit(pages, tokens, end)
        book.slide(pages, end)
    return stored


def run(book: WindowBook, tokens: list[int]) -> tuple[int, list[int]]:
    """Compute a sequence and end it; returns how many tokens were found and the pages to be stored."""
    pages, found = begin(book, tokens)
    stored = compute(book, pages, tokens, found)
    stored += book.ending(pages)
    book.release(pages)
    assert book.check() == []
    return found, stored


def test_a_long_sequence_takes_a_bounded_number_of_pages() -> None:
    small = book(pages=7)
    assert small.most_pages(100_000) == 6
    found, stored = run(small, list(range(2000)))
    assert (found, small.used) == (0, 0)
    assert stored[-3:] == [122, 123, 124]


def test_only_pages_of_points_are_kept() -> None:
    cache = book(pages=40, interval=10_000)
    _, stored = run(cache, list(range(400)))
    assert stored == [21, 22, 23, 24], "those before 384, the end of the input that leaves a token, and 400"
    assert cache.cached == len(stored)


def test_the_next_turn_and_the_same_prompt_again_go_on_from_their_ends() -> None:
    cache = book()
    prompt = list(range(300))
    run(cache, prompt)
    assert run(cache, prompt)[0] == 288
    assert run(cache, [*prompt, *range(1000, 1040)])[0] == 288
    assert run(cache, [*prompt, *range(1000, 1080)])[0] == 336


def test_a_prompt_that_parts_early_goes_on_from_the_last_interval() -> None:
    cache = book(interval=80)
    run(cache, list(range(300)))
    assert run(cache, [*range(200), *range(1000, 1100)])[0] == 160


def test_where_prompts_part_is_kept_from_the_second_on() -> None:
    cache = book(interval=10_000)
    shared = list(range(200))
    assert [run(cache, [*shared, *range(first, first + 100)])[0] for first in (1000, 2000, 3000)] == [0, 0, 192]


def test_a_unit_that_has_lost_a_page_is_not_resumed() -> None:
    cache = book(pages=8, interval=10_000)
    prompt = list(range(100))
    run(cache, prompt)
    run(cache, list(range(1000, 1100)))
    assert cache.evictions
    assert cache.cached_tokens(cache.open(ROOT), prompt) == 0


def test_a_sequence_resumed_from_below_holds_its_window_only() -> None:
    cache = book()
    pages = cache.open(ROOT)
    tokens = list(range(500))
    assert cache.fits(pages, tokens, point=320)
    assert cache.match_prefix(pages, tokens, 320) == 320
    assert (pages.start, pages.registered, pages.held) == (17, 17, [])
    cache.expect(pages, tokens)
    assert cache.grow(pages, 320, cache.first_end(pages, 500)) == []
    assert len(pages.held) == cache.most_pages(500)
    compute(cache, pages, tokens, 320)
    cache.release(pages)
    assert cache.used == 0
    assert cache.check() == []


def test_a_second_match_is_refused() -> None:
    cache = book()
    pages, _ = begin(cache, list(range(40)))
    with pytest.raises(ValueError, match="before the sequence holds"):
        cache.match_prefix(pages, list(range(40)))


@dataclass(eq=False)
class Live:
    """One sequence as its owner sees it."""

    tenant: str
    tokens: list[int]
    pages: SequencePages
    computed: int


class WindowMachine(RuleBasedStateMachine):
    """Sequences come, are computed in chunks, fork, grow, and go, with a lower tier that loses pages."""

    @initialize(
        room=st.integers(0, 20),
        window=st.integers(17, 80),
        chunk=st.integers(1, 3),
        interval=st.integers(16, 200),
        prefix_cache=st.booleans(),
    )
    def start(self, room: int, window: int, chunk: int, interval: int, prefix_cache: bool) -> None:
        self.policy, self.chunk = ResumePolicy(window, interval), chunk * PAGE_TOKENS
        most = (window - 1 + self.chunk + 15) // PAGE_TOKENS + 1
        self.book = WindowBook(most + room, self.policy, self.chunk, prefix_cache)
        assert self.book.most_pages(10**6) == most
        self.most = most
        self.store: dict[tuple[int, int], Content] = {}
        self.below: dict[bytes, list[Content]] = {}
        self.live: list[Live] = []

    @rule(tenant=st.sampled_from("ab"), pattern=st.lists(st.integers(0, 1), min_size=1, max_size=9), low=st.booleans())
    def arrive(self, tenant: str, pattern: list[int], low: bool) -> None:
        tokens = [bit for bit in pattern for _ in range(23)]
        pages = self.book.open(page_root("m", tenant))
        point = self.reach(pages, tokens) if low and self.book.prefix_cache else None
        expected = self.book.cached_tokens(pages, tokens) if point is None else point
        fits = self.book.fits(pages, tokens, point=point)
        assert self.book.match_prefix(pages, tokens, point) == expected < len(tokens)
        assert (self.book.missing(pages, len(tokens)) <= 0) == fits
        lacking = [i for i in range(pages.start, expected // PAGE_TOKENS) if pages.numbers[i] < 0]
        assert bool(lacking) <= (point is not None)
        self.book.expect(pages, tokens)
        copies = self.book.grow(pages, expected, self.book.first_end(pages, len(tokens)))
        assert (copies == []) == fits
        if copies is None:
            self.book.release(pages)
            return
        for i in lacking:
            for slot, content in enumerate(self.below[pages.ids[i]]):
                self.store[pages.numbers[i], slot] = content
        live = Live(tenant, tokens, pages, expected)
        self.save(live, self.book.commit(pages, tokens, expected))
        self.live.append(live)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), tokens=st.integers(1, 48))
    def compute(self, data: st.DataObject, tokens: int) -> None:
        live = data.draw(st.sampled_from(self.live))
        end = min(len(live.tokens), live.computed + min(tokens, self.chunk))
        if end == live.computed:
            live.tokens.append(data.draw(st.integers(0, 1)))
            end += 1
        copies = self.book.grow(live.pages, live.computed, end)
        if copies is None:
            return
        for source, target in copies:
            for slot in range(PAGE_TOKENS):
                if (source, slot) in self.store:
                    self.store[target, slot] = self.store[source, slot]
        self.book.settle()
        for i in range(live.computed, end):
            number = live.pages.numbers[i // PAGE_TOKENS]
            self.store[number, i % PAGE_TOKENS] = (live.tenant, tuple(live.tokens[: i + 1]))
        live.computed = end
        self.save(live, self.book.commit(live.pages, live.tokens, end))
        self.book.slide(live.pages, end)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        live = data.draw(st.sampled_from(self.live))
        tokens = live.tokens[: live.computed]
        self.live.append(Live(live.tenant, tokens, self.book.fork(live.pages, live.computed), live.computed))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        live = data.draw(st.sampled_from(self.live))
        self.live.remove(live)
        resumed = self.policy.pages_for(live.pages.registered * PAGE_TOKENS)
        self.save(live, self.book.ending(live.pages))
        ids = live.pages.ids[resumed.start : resumed.stop]
        self.book.release(live.pages)
        assert all(self.book.number_of(page) is not None for page in ids)

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        if self.below:
            del self.below[data.draw(st.sampled_from(sorted(self.below)))]

    @rule()
    def clear(self) -> None:
        self.book.clear()
        assert self.book.cached == 0

    def save(self, live: Live, stored: object) -> None:
        assert isinstance(stored, (list, tuple))
        for i in stored:
            number = live.pages.numbers[i]
            self.below[live.pages.ids[i]] = [self.store[number, slot] for slot in range(PAGE_TOKENS)]

    def reach(self, pages: SequencePages, tokens: list[int]) -> int:
        def there(i: int) -> bool:
            page = pages.id_at(i, tokens)
            return page in self.below or self.book.number_of(page) is not None

        return self.policy.resume_at((len(tokens) - 1) // PAGE_TOKENS, there)

    @invariant()
    def every_page_is_accounted_for(self) -> None:
        assert self.book.check() == []
        assert self.book.used + self.book.cached + self.book.free == self.book.total

    @invariant()
    def nobody_holds_more_than_a_window_and_a_chunk(self) -> None:
        assert all(len(live.pages.held) <= self.most for live in self.live)

    @invariant()
    def everyone_sees_their_own_tokens(self) -> None:
        for live in self.live:
            for i in range(max(0, live.computed - self.policy.window + 1), live.computed):
                slot = live.pages.numbers[i // PAGE_TOKENS], i % PAGE_TOKENS
                assert self.store[slot] == (live.tenant, tuple(live.tokens[: i + 1]))

    def teardown(self) -> None:
        if hasattr(self, "book"):
            for live in self.live:
                self.book.release(live.pages)
            self.book.settle()
            assert self.book.used == 0
            assert self.book.check() == []


TestWindowMachine = WindowMachine.TestCase
TestWindowMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)
