"""Any order of operations on the book: no page lost or in two states, tenants apart, contents never overwritten.

The machine keeps, beside the book, what a page store would hold: for each slot of each page the whole prefix up to that
token. Whatever a sequence reads through its pages must be its own tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.kv import PAGE_TOKENS, KvBook, SequencePages, page_root

Content = tuple[str, tuple[int, ...]]
"""A tenant and all tokens up to a position: what KV at that position depends on."""


@dataclass(eq=False)
class Live:
    """One sequence as its owner sees it."""

    tenant: str
    tokens: list[int]
    pages: SequencePages
    computed: int = 0


class BookMachine(RuleBasedStateMachine):
    """Sequences come, are computed, fork, grow and go, in a small book with few distinct tokens."""

    @initialize(pages=st.integers(4, 24), prefix_cache=st.booleans())
    def start(self, pages: int, prefix_cache: bool) -> None:
        self.book = KvBook(pages, prefix_cache)
        self.store: dict[tuple[int, int], Content] = {}
        self.live: list[Live] = []

    @rule(
        tenant=st.sampled_from("ab"), pattern=st.lists(st.integers(0, 1), min_size=1, max_size=5), reuse=st.booleans()
    )
    def arrive(self, tenant: str, pattern: list[int], reuse: bool) -> None:
        tokens = [bit for bit in pattern for _ in range(11)]
        pages = self.book.open(page_root("m", tenant), reuse=reuse)
        fits = self.book.fits(pages, tokens)
        expected = self.book.cached_tokens(pages, tokens)
        found = self.book.match_prefix(pages, tokens)
        assert found == expected < len(tokens)
        room = self.book.missing(pages, len(tokens)) <= 0
        assert room == fits
        copies = self.book.grow(pages, found, len(tokens))
        assert (copies == []) == fits
        if copies is None:
            self.book.release(pages)
        else:
            self.live.append(Live(tenant, tokens, pages, found))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), share=st.integers(1, 3))
    def compute(self, data: st.DataObject, share: int) -> None:
        live = data.draw(st.sampled_from(self.live))
        end = live.computed + -(-(len(live.tokens) - live.computed) // share)
        self.write(live, live.computed, end)
        live.computed = end
        self.book.commit(live.pages, live.tokens, end)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), count=st.integers(1, 3), hang_up=st.booleans())
    def decode_together(self, data: st.DataObject, count: int, hang_up: bool) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.live), unique_by=id, max_size=count))
        step = [live for live in chosen if live.computed == len(live.tokens)]
        copies: list[tuple[int, int]] = []
        ready = []
        for live in step:
            pairs = self.book.grow(live.pages, live.computed, live.computed + 1)
            if pairs is not None:
                copies += pairs
                ready.append(live)
        assert not {source for source, _ in copies} & {target for _, target in copies}
        if ready and hang_up:
            gone = data.draw(st.sampled_from(self.live))
            self.book.release(gone.pages)
            self.live.remove(gone)
            ready = [live for live in ready if live is not gone]
        before = dict(self.store)
        for source, target in copies:
            for slot in range(PAGE_TOKENS):
                if (source, slot) in before:
                    self.store[target, slot] = before[source, slot]
        for live in ready:
            live.tokens.append(data.draw(st.integers(0, 1)))
            self.write(live, live.computed, live.computed + 1)
            live.computed += 1
        self.book.settle()
        for live in ready:
            self.book.commit(live.pages, live.tokens, live.computed)

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
        self.book.release(live.pages)

    def write(self, live: Live, start: int, end: int) -> None:
        for i in range(start, end):
            number = live.pages.numbers[i // PAGE_TOKENS]
            self.store[number, i % PAGE_TOKENS] = (live.tenant, tuple(live.tokens[: i + 1]))

    @invariant()
    def every_page_is_accounted_for(self) -> None:
        assert self.book.check() == []
        assert self.book.used + self.book.cached + self.book.free == self.book.total

    @invariant()
    def everyone_reads_their_own_tokens(self) -> None:
        for live in self.live:
            for i in range(live.computed):
                slot = live.pages.numbers[i // PAGE_TOKENS], i % PAGE_TOKENS
                assert self.store[slot] == (live.tenant, tuple(live.tokens[: i + 1]))

    def teardown(self) -> None:
        if hasattr(self, "book"):
            for live in self.live:
                self.book.release(live.pages)
            self.book.settle()
            assert self.book.used == 0
            assert self.book.check() == []


TestBookMachine = BookMachine.TestCase
TestBookMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None, derandomize=True)
