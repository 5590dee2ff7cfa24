"""Models whose attention has a window: bounded pages, units in every tier, and the same answers whatever happens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize
from tests.scheduling.driver import Driver, alone, request
from tests.scheduling.test_scheduling_tiers_machine import QUOTAS, TieredScheduler
from tests.scheduling.tiered import LowerTiers, TieredDriver

from forebay.core.errors import ConfigError
from forebay.core.request import Priority
from forebay.kv import ResumePolicy
from forebay.scheduling.draft import attention_work

CHUNKS: dict[str, Any] = {"min_chunk": 32, "max_chunk": 32, "max_model_len": 4000}
POLICY = ResumePolicy(window=64, interval=2000)


def test_a_long_prompt_and_answer_run_in_few_pages() -> None:
    driver = Driver(7, policy=POLICY, **CHUNKS)
    wanted = request("long", 1000, max_tokens=300)
    driver.add(wanted)
    while not driver.ended:
        driver.step()
        assert driver.book.used <= 7
    assert driver.output("long") == alone(wanted, 4000)[0][0]
    assert driver.book.check() == []
    with pytest.raises(ConfigError, match="6 pages, but one sequence of 4000 tokens takes 7"):
        Driver(6, policy=POLICY, **CHUNKS)


@pytest.mark.parametrize(("start", "tokens"), [(0, 5), (0, 40), (10, 30), (31, 1), (32, 1), (50, 9)])
def test_attention_is_counted_within_the_window(start: int, tokens: int) -> None:
    seen = [at + 1 for at in range(start, start + tokens)]
    assert attention_work(start, tokens) == sum(seen)
    assert attention_work(start, tokens, 32) == sum(min(count, 32) for count in seen)


def test_units_are_all_that_is_stored_and_enough_for_the_next_turn() -> None:
    below = LowerTiers(200)
    driver = TieredDriver(40, below, policy=POLICY, **CHUNKS)
    first = driver.add(request("first", 500, max_tokens=20))
    driver.run()
    ends = {ref.end for ref, _ in below.host.values()}
    assert ends == {448, 464, 480, 496, 512}, "a window before 496, the end of the input, and 512, that of the output"
    driver.book.clear()
    follow = driver.add(request("second", [*first.all_ids, *range(100)], max_tokens=4))
    driver.run()
    assert (follow.cached_tokens, follow.cached_host) == (512, 512)
    assert driver.loaded == 4


def test_a_unit_that_arrives_short_is_computed_and_not_asked_for_again() -> None:
    below = LowerTiers(200)
    driver = TieredDriver(40, below, delay=3, policy=POLICY, **CHUNKS)
    first = driver.add(request("first", 500, max_tokens=20))
    driver.run()
    driver.book.clear()
    follow = request("second", [*first.all_ids, *range(100)], max_tokens=4)
    driver.add(follow)
    driver.step()
    below.lose(next(page for page, (ref, _) in below.host.items() if ref.end == 496))
    driver.run()
    assert driver.output("second") == alone(follow, 4000)[0][0]
    assert driver.scheduler.stats().prompt_tokens_cached == 0
    tiers = driver.scheduler.stats().tiers
    assert tiers is not None
    assert (tiers.loads, tiers.loads_short) == (1, 1)


def test_preemption_moves_the_window_only() -> None:
    below = LowerTiers(100)
    driver = TieredDriver(9, below, policy=POLICY, **CHUNKS)
    batch = request("batch", 1000, max_tokens=200, priority=Priority.BACKGROUND_BATCH)
    driver.add(batch)
    while driver.scheduler.stats().generation_tokens < 150:
        driver.step()
    urgent = request("urgent", 700, max_tokens=60, priority=Priority.CRITICAL_INTERACTIVE)
    driver.add(urgent)
    driver.run()
    assert driver.scheduler.stats().preemptions == 1
    assert driver.urgent <= 5
    assert driver.loaded <= 5
    for wanted in (batch, urgent):
        assert driver.output(wanted.id) == alone(wanted, 4000)[0][0]
    assert driver.scheduler.stats().prompt_tokens_computed == 1700


def test_what_the_last_page_border_sees_stays_with_a_sequence_that_leaves() -> None:
    """At token 129 a window of 34 begins a page later than at 128, the border from which the sequence comes back."""
    driver = TieredDriver(
        6, LowerTiers(1, 8), policy=ResumePolicy(34, 16), max_model_len=192, max_running=4, min_chunk=32, max_chunk=32
    )
    driver.add(request("long", 128, max_tokens=3))
    for _ in range(5):
        driver.step()
    driver.add(request("urgent", 48, max_tokens=1, priority=Priority.CRITICAL_INTERACTIVE))
    driver.run()
    assert driver.scheduler.stats().preemptions == 1
    assert not driver.scheduler.stats().recomputed_by


class WindowedScheduler(TieredScheduler):
    """The same requests, aborts and faults where all attention has a window."""

    @initialize(
        host=st.integers(1, 24),
        disk=st.sampled_from([0, 8, 40]),
        delay=st.integers(1, 4),
        public=st.sampled_from([0, 40, 150]),
        window=st.integers(17, 80),
        interval=st.integers(16, 200),
        spare=st.integers(0, 4),
        limits=st.tuples(QUOTAS, QUOTAS),
        faults=st.booleans(),
    )
    def start(self, **drawn: Any) -> None:
        self.faults = drawn["faults"]
        window = drawn["window"]
        pages = -(-(window - 1 + 32) // 16) + 1 + drawn["spare"]
        self.driver = TieredDriver(
            pages,
            LowerTiers(drawn["host"], drawn["disk"], *drawn["limits"]),
            drawn["delay"],
            policy=ResumePolicy(window, drawn["interval"]),
            max_model_len=192,
            max_running=4,
            min_chunk=32,
            max_chunk=32,
        )
        self.driver.scheduler.mark_public(request("stem 0", 150).prompt_ids[: drawn["public"]])
        self.wanted = {}
        self.gone = set()


TestWindowedScheduler = WindowedScheduler.TestCase
TestWindowedScheduler.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
