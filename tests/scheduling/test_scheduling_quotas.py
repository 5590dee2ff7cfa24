"""Tenants that may hold little below: who leaves the device, who waits, and that a quota costs nobody a token."""

from __future__ import annotations

from typing import Any

from tests.scheduling.driver import alone, request
from tests.scheduling.tiered import LowerTiers, TieredDriver

from forebay.core.request import GenerateRequest, Priority
from forebay.scheduling.room import Room

CRITICAL, NORMAL, BATCH = Priority.CRITICAL_INTERACTIVE, Priority.NORMAL_INTERACTIVE, Priority.BACKGROUND_BATCH


def limited(pages: int, quotas: dict[str, int], **config: Any) -> TieredDriver:
    """Plenty of room below, of which some tenants may have little."""
    return TieredDriver(pages, LowerTiers(100, quotas=quotas), max_model_len=16 * pages, **config)


def begin(driver: TieredDriver, name: str, prompt: list[int] | int, steps: int = 3, **options: Any) -> GenerateRequest:
    given: dict[str, Any] = {"max_tokens": 30, "priority": BATCH, "tenant": name} | options
    wanted = request(name, prompt, **given)
    driver.add(wanted)
    for _ in range(steps):
        driver.step()
    return wanted


def finish(driver: TieredDriver, *wanted: GenerateRequest) -> None:
    driver.run()
    for one in wanted:
        assert driver.output(one.id) == alone(one, driver.config.max_model_len)[0][0]
    stats = driver.scheduler.stats()
    assert stats.recomputed_by == {}
    assert stats.prompt_tokens_computed == sum(len(one.prompt_ids) for one in wanted)


def test_a_victim_whose_tenant_has_room_goes_before_one_of_lower_rank_whose_tenant_has_none() -> None:
    driver = limited(12, {"full": 3})
    roomy = begin(driver, "roomy", 60, priority=NORMAL)
    full = begin(driver, "full", 60)
    critical = request("critical", 70, priority=CRITICAL)
    driver.add(critical)
    plan = driver.step()
    assert plan is not None
    assert [sequence.request_id for sequence in plan.preempted] == ["roomy"]
    finish(driver, roomy, full, critical)


def test_what_a_tenant_has_pinned_leaves_less_of_its_quota() -> None:
    """Its quota holds either of two, not both; the second stays on the device once the first has gone."""
    driver = limited(16, {"t": 5})
    pair = [begin(driver, name, 60, tenant="t") for name in ("first", "second")]
    other = begin(driver, "other", 60, priority=NORMAL)
    critical = request("critical", 118, priority=CRITICAL)
    driver.add(critical)
    plan = driver.step()
    assert plan is not None
    assert [sequence.request_id for sequence in plan.preempted] == ["second", "other"]
    finish(driver, *pair, other, critical)


def test_nothing_is_asked_for_or_copied_where_no_victim_has_room() -> None:
    driver = limited(8, {"batch": 2})
    batch = begin(driver, "batch", 88, 6)
    critical = request("critical", 57, priority=CRITICAL)
    driver.add(critical)
    for _ in range(5):
        plan = driver.step()
        assert plan is not None
        assert not plan.preempted
    assert (driver.urgent, driver.below.refused) == (0, [])
    finish(driver, batch, critical)


def test_rows_of_a_tenant_grow_only_while_its_quota_lets_all_end() -> None:
    """There is room below for all, but the tenant may have none of it: one waits for the other."""
    driver = limited(10, {"t": 0})
    pair = [begin(driver, name, 50, 1, tenant="t", max_tokens=50) for name in ("first", "second")]
    finish(driver, *pair)
    assert driver.scheduler.stats().preemptions == 0


def test_a_tenant_with_a_quota_is_let_in_beside_one_that_can_step_aside() -> None:
    driver = limited(12, {"t": 0})
    free = begin(driver, "free", 20, 2, max_tokens=170)
    bound = begin(driver, "bound", 120, 1, tenant="t", max_tokens=60)
    assert driver.scheduler.running == 2
    finish(driver, free, bound)


def test_a_tenant_is_not_let_in_where_its_own_others_could_not_step_aside() -> None:
    driver = limited(12, {"t": 0})
    pair = [begin(driver, "first", 20, 2, tenant="t", max_tokens=170)]
    pair.append(begin(driver, "second", 120, 1, tenant="t", max_tokens=60))
    assert driver.scheduler.running == 1
    finish(driver, *pair)


def test_rows_grow_only_while_those_who_step_aside_can_be_kept_in_one_go() -> None:
    """The tenant may have all of it on disk, but no more than two pages on their way there."""
    driver = TieredDriver(10, LowerTiers(100, once={"t": 2}), max_model_len=160)
    pair = [begin(driver, name, 50, 1, tenant="t", max_tokens=50) for name in ("first", "second")]
    finish(driver, *pair)
    assert driver.scheduler.stats().preemptions == 0


def test_public_pages_are_charged_to_no_tenant() -> None:
    driver = limited(8, {"batch": 2})
    stem = request("stem", 64).prompt_ids
    driver.scheduler.mark_public(stem)
    batch = begin(driver, "batch", [*stem, *range(20)], 4, max_tokens=9)
    critical = request("critical", 57, priority=CRITICAL)
    driver.add(critical)
    plan = driver.step()
    assert plan is not None
    assert [sequence.request_id for sequence in plan.preempted] == ["batch"]
    finish(driver, batch, critical)


def test_a_row_that_can_not_be_kept_is_not_written_through_in_vain() -> None:
    """It wants a page, nobody ranks below it, and its quota holds but some of its pages: it waits as it is."""
    driver = limited(60, {"t": 4}, max_step_s=10.0, max_step_tokens=1024, max_chunk=1024)
    low = begin(driver, "low", 500, 2, tenant="t", max_tokens=100)
    high = begin(driver, "high", 400, 2, tenant="t", max_tokens=60, priority=NORMAL)
    driver.settle()
    before = driver.below.saves
    while not driver.ended:
        assert driver.step() is not None
    assert driver.below.saves - before <= 4 + 6, "pages that became full, once each"
    finish(driver, low, high)


def test_what_a_choice_without_room_below_computes_again_is_called_that() -> None:
    """It was no damage: nothing of it was kept."""
    driver = limited(12, {"t": 0}, max_running=2)
    wanted = request("three", 40, max_tokens=20, n=3, tenant="t")
    driver.add(wanted)
    driver.add(request("other", 100, max_tokens=2, priority=CRITICAL))
    driver.run()
    assert set(driver.scheduler.stats().recomputed_by) == {"no_room"}
    for index, (tokens, _) in alone(wanted, driver.config.max_model_len).items():
        assert driver.output("three", index) == tokens


def test_room_is_used_up_by_all_and_by_each_tenant() -> None:
    room = Room(10, {"a": 4, "b": -2}.get)
    assert room.fits({"a": 4, "c": 6})
    assert not room.fits({"a": 5})
    assert not room.fits({"c": 11})
    assert room.fits({"b": 0, "c": 1}), "who brings nothing is over no quota"
    assert not room.fits({"b": 1})
    copy = room.copy()
    copy.take({"a": 3, "c": 5})
    assert not copy.fits({"a": 2})
    assert not copy.fits({"c": 3})
    assert room.fits({"a": 4})
    copy.give({"a": 3})
    assert copy.fits({"a": 4})
    empty = Room(-1, lambda _: None)
    assert empty.fits({})
    assert not empty.fits({"a": 1})
