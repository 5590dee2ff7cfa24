"""Any order of requests, aborts and steps over lower tiers that are small, slow and lose pages: answers stay the same,
no page is lost track of, and everything is free at the end. Where the tiers do not fail, no token is computed twice,
however small they are."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.scheduling.driver import alone, request
from tests.scheduling.tiered import LowerTiers, TieredDriver

from forebay.core.request import GenerateRequest, Priority
from forebay.kv import PAGE_TOKENS, KvBook, pages_for

PAGES = 12
QUOTAS = st.fixed_dictionaries({}, optional={tenant: st.integers(0, PAGES // 2) for tenant in "ab"})
"""Pages that tenants may have below; half of the device's or fewer, lest they hardly ever matter."""


def too_wide(book: KvBook, wanted: GenerateRequest) -> bool:
    """Whether the choices of a request together want more pages than the device has: with no room below for one of
    them, some of it is computed twice, whoever else runs."""
    shared, choices = len(wanted.prompt_ids) // PAGE_TOKENS, wanted.sampling.n
    tokens = len(wanted.prompt_ids) + wanted.sampling.max_tokens
    most = min(shared + choices * (pages_for(tokens) - shared), choices * book.most_pages(tokens))
    return choices > 1 and most > book.total


class TieredScheduler(RuleBasedStateMachine):
    """Twelve device pages, few prompts that share beginnings, and tiers that are drawn anew for each run."""

    too_wide = False
    """Whether a request came whose choices don't fit the device together."""

    @initialize(
        host=st.integers(1, 24),  # a worker without a host pool has no tiers
        disk=st.sampled_from([0, 8, 40]),
        delay=st.integers(1, 4),
        public=st.sampled_from([0, 40, 150]),
        limits=st.tuples(QUOTAS, QUOTAS),
        faults=st.booleans(),
    )
    def start(
        self, host: int, disk: int, delay: int, public: int, limits: tuple[dict[str, int], dict[str, int]], faults: bool
    ) -> None:
        self.faults = faults
        below = LowerTiers(host, disk, *limits)
        self.driver = TieredDriver(PAGES, below, delay, max_model_len=16 * PAGES, max_running=4)
        self.driver.scheduler.mark_public(request("stem 0", 150).prompt_ids[:public])
        self.wanted: dict[str, GenerateRequest] = {}
        self.gone: set[str] = set()

    @rule(
        stem=st.integers(0, 2),
        length=st.integers(1, 150),
        own=st.integers(0, 40),
        options=st.fixed_dictionaries(
            {
                "max_tokens": st.integers(1, 40),
                "priority": st.sampled_from(list(Priority)),
                "tenant": st.sampled_from(["a", "b"]),
                "n": st.sampled_from([1, 1, 1, 2]),
            }
        ),
    )
    def add(self, stem: int, length: int, own: int, options: dict[str, Any]) -> None:
        name = f"r{len(self.wanted)}"
        stem_ids = request(f"stem {stem}", 150).prompt_ids[:length]
        self.wanted[name] = request(name, [*stem_ids, *request(name, own).prompt_ids][:185], **options)
        self.too_wide |= too_wide(self.driver.book, self.wanted[name])
        self.driver.add(self.wanted[name])

    @rule(steps=st.integers(1, 12))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.driver.step()

    @precondition(lambda self: bool(getattr(self, "wanted", None)))
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.wanted)))
        if self.driver.scheduler.abort(name):
            self.gone.add(name)

    @precondition(lambda self: getattr(self, "faults", False))
    @rule(nth=st.integers(0, 30))
    def lose(self, nth: int) -> None:
        kept = [*self.driver.below.host, *self.driver.below.disk]
        if kept:
            self.driver.below.lose(kept[nth % len(kept)])

    @precondition(lambda self: getattr(self, "faults", False))
    @rule()
    def fill_up(self) -> None:
        self.driver.below.refuse = not self.driver.below.refuse

    @invariant()
    def books_are_right(self) -> None:
        if not hasattr(self, "driver"):
            return
        assert not self.driver.book.check()
        assert len(self.driver.below.host) <= self.driver.below.sizes[0]
        assert len(self.driver.below.disk) <= self.driver.below.sizes[1]
        held = Counter(ref.tenant for ref, _ in (*self.driver.below.host.values(), *self.driver.below.disk.values()))
        assert all(held[tenant] <= limit for tenant, limit in self.driver.below.quotas.items())

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.driver.run(3000)
        self.driver.settle()
        for name, wanted in self.wanted.items():
            if name not in self.gone:
                for index, answer in alone(wanted, 16 * PAGES).items():
                    sequence = self.driver.ended[name, index]
                    assert (sequence.output_ids, sequence.finish_reason) == answer
        if not self.faults and not self.too_wide:
            assert set(self.driver.scheduler.stats().recomputed_by) <= {"draft"}, "tokens were lost"
        assert not self.driver.below.pins
        assert not self.driver.below.promised
        assert not self.driver.book.check()
        assert self.driver.book.used == 0
        assert not self.driver.scheduler.moving


TestTieredScheduler = TieredScheduler.TestCase
TestTieredScheduler.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
