"""Who is served when, one rule at a time. Any mixture of them: see `test_scheduling_machine.py`."""

from __future__ import annotations

import pytest
from tests.scheduling.driver import Driver, alone, request

from forebay.core.errors import ConfigError, ContextLengthError, InvalidRequestError, OverloadedError
from forebay.core.request import FinishReason, Priority
from forebay.kv import KvBook
from forebay.scheduling import Scheduler, SchedulerConfig, StepPlan, StepTimeModel
from forebay.scheduling.classes import LengthClasses


def names(plan: StepPlan | None) -> list[str]:
    assert plan is not None
    return [row.sequence.request_id for row in plan.rows]


def assert_true(value: bool) -> None:
    assert value


def tokens(plan: StepPlan | None) -> dict[str, int]:
    assert plan is not None
    return {row.sequence.request_id: row.tokens for row in plan.rows}


def test_nothing_to_do_is_no_plan() -> None:
    assert Driver().step() is None


def test_decode_rows_come_first_and_prefill_fills_the_rest_of_the_target() -> None:
    driver = Driver(target_itl_s=1.0)
    driver.add(request("a", 20, 50))
    driver.step()
    driver.add(request("b", 3000))
    plan = driver.step()
    assert plan is not None
    assert names(plan) == ["a", "b"]
    assert 256 <= plan.rows[1].tokens < 2048
    assert 0.95 < plan.predicted_s <= 1.0


def test_prefill_goes_on_beside_decode_rows_that_take_all_the_time() -> None:
    driver = Driver(target_itl_s=0.01)
    driver.add(request("a", 20, 50))
    driver.step()
    driver.add(request("b", 100))
    plan = driver.step()
    assert tokens(plan) == {"a": 1, "b": 16}


def test_prefill_keeps_its_share_when_decode_alone_takes_the_target() -> None:
    driver = Driver(target_itl_s=0.05, max_running=200)
    for i in range(150):
        driver.add(request(str(i), 3, 50))
    while driver.scheduler.waiting:
        driver.step()
    driver.add(request("b", 100))
    plan = driver.step()
    assert tokens(plan)["b"] == 16
    assert plan is not None
    assert plan.decode_rows == 150


def test_a_step_without_decode_rows_is_larger_but_bounded() -> None:
    driver = Driver(max_step_s=3.0, max_step_tokens=2304)
    for name, length in (("a", 3000), ("b", 300)):
        driver.add(request(name, length))
    plan = driver.step()
    assert plan is not None
    assert list(tokens(plan)) == ["b", "a"]
    assert 2.9 < plan.predicted_s <= 3.0


def test_chunk_sizes_are_bounded_by_step_tokens() -> None:
    driver = Driver(max_step_s=100.0, max_step_tokens=2304)
    for name in "abc":
        driver.add(request(name, 2200))
    assert tokens(driver.scheduler.plan(0.0)) == {"a": 2048, "b": 256}


@pytest.mark.parametrize("target", [0.05, 1.0])
def test_a_short_prompt_does_not_wait_for_a_long_one(target: float) -> None:
    driver = Driver(target_itl_s=target)
    driver.add(request("decoding", 5, 200))
    driver.step()
    driver.add(request("long", 8000))
    for _ in range(3):
        driver.step()
    driver.add(request("short", 16))
    plan = driver.step()
    assert plan is not None
    assert tokens(plan)["short"] == 16
    assert plan.rows[1].sequence.request_id == "short"


def test_long_prompts_progress_while_short_ones_fill_every_step() -> None:
    driver = Driver(max_step_s=0.7, max_running=200)
    long = driver.add(request("long", 3000, 1))
    driver.step()
    for step in range(200):
        for i in range(2):
            driver.add(request(f"{step} {i}", 200, 1))
        plan = driver.step()
        assert plan is not None
        if long.finish_reason is not None:
            break
    assert long.finish_reason is FinishReason.LENGTH
    assert driver.scheduler.waiting > 0, "the short ones did fill every step"
    assert step > 20


def test_priorities_go_first_and_aging_lifts_the_others() -> None:
    driver = Driver(aging_s=10.0)
    driver.add(request("batch", 256, priority=Priority.BACKGROUND_BATCH))
    driver.now = 1.0
    driver.add(request("normal", 256))
    assert names(driver.step()) == ["normal"]
    driver = Driver(aging_s=10.0)
    driver.add(request("batch", 256, priority=Priority.BACKGROUND_BATCH))
    driver.now = 21.0
    driver.add(request("normal", 256))
    assert names(driver.step()) == ["batch"]


def test_no_priority_starves() -> None:
    driver = Driver(aging_s=2.0, max_step_s=0.7)
    batch = driver.add(request("batch", 2000, 1, priority=Priority.BACKGROUND_BATCH))
    for step in range(200):
        for i in range(2):
            driver.add(request(f"{step} {i}", 200, 1, priority=Priority.CRITICAL_INTERACTIVE))
        driver.step()
        if batch.finish_reason is not None:
            break
    assert batch.finish_reason is FinishReason.LENGTH


def test_the_second_of_two_equal_prompts_waits_for_the_first_one_s_pages() -> None:
    driver = Driver(max_step_s=10.0)
    driver.add(request("a", [5] * 120, 1))
    driver.add(request("b", [5] * 120, 1))
    assert tokens(driver.step()) == {"a": 120}
    assert tokens(driver.step()) == {"b": 8}
    assert driver.ended["b", 0].cached_tokens == 112
    stats = driver.scheduler.stats()
    assert (stats.prompt_tokens_computed, stats.prompt_tokens_cached) == (128, 112)
    assert (stats.prefix_queries_tokens, stats.prefix_hits_tokens) == (240, 112)


def test_the_class_follows_what_the_cache_has_when_the_turn_comes() -> None:
    driver = Driver()
    driver.add(request("a", [5] * 1000, 1))
    b = driver.add(request("b", [5] * 990, 1))
    assert driver.scheduler.waiting_by_class == [0, 2, 0, 0]
    while driver.scheduler.running or b.length_class:
        driver.step()
    assert b.length_class == 0
    driver.run()
    assert b.cached_tokens == 976


def test_prompt_logprobs_compute_the_whole_prompt() -> None:
    driver = Driver()
    driver.add(request("a", [5] * 120, 1))
    driver.step()
    driver.add(request("b", [5] * 120, 1, prompt_logprobs=0))
    assert tokens(driver.step()) == {"b": 120}
    assert driver.book.check() == []


def test_n_choices_share_the_prompt_and_copy_its_tail() -> None:
    driver = Driver()
    wanted = request("a", 40, 3, n=3)
    driver.add(wanted)
    plan = driver.step()
    assert plan is not None
    assert plan.rows[0].samples == 3
    assert driver.scheduler.running == 3
    assert driver.book.used == 3
    plan = driver.step()
    assert plan is not None
    assert len(plan.copies) == 2
    driver.run()
    for index, (expected, _) in alone(wanted, 10000).items():
        assert driver.output("a", index) == expected


def test_more_choices_than_rows_take_turns() -> None:
    driver = Driver(max_running=2)
    driver.add(request("a", 40, 5, n=5))
    driver.step()
    assert (driver.scheduler.running, driver.scheduler.waiting) == (2, 3)
    driver.run()
    assert len(driver.ended) == 5


def test_the_latest_of_equals_is_put_back_and_goes_on_with_the_same_answer() -> None:
    driver = Driver(8, prefix_cache=False, max_model_len=128)
    wanted = [request(name, 40, 30) for name in "ab"]
    for each in wanted:
        driver.add(each)
    preempted = []
    while driver.step() is not None:
        preempted += [sequence.request_id for sequence in driver.plans[-1].preempted]
    assert preempted == ["b"]
    assert driver.scheduler.stats().preemptions == 1
    for each in wanted:
        assert driver.output(each.id) == alone(each, 128)[0][0]


def test_resuming_reads_back_what_the_cache_still_has() -> None:
    driver = Driver(9, max_model_len=128)
    for name in "ab":
        driver.add(request(name, 40, 45))
    driver.run()
    assert driver.scheduler.stats().preemptions > 0
    assert driver.scheduler.stats().prompt_tokens_computed < 40 + 40 + 40


def test_a_higher_priority_takes_pages_from_a_lower_one() -> None:
    driver = Driver(8, prefix_cache=False, max_model_len=128)
    driver.add(request("batch", 100, 20, priority=Priority.BACKGROUND_BATCH))
    driver.step()
    driver.add(request("normal", 40, 5))
    plan = driver.step()
    assert plan is not None
    assert names(plan) == ["normal"]
    assert [sequence.request_id for sequence in plan.preempted] == ["batch"]
    driver.run()
    assert len(driver.ended) == 2


def test_a_preempted_row_takes_its_page_copies_with_it() -> None:
    driver = Driver(8, prefix_cache=False, max_model_len=128)
    driver.add(request("batch", 40, 20, n=2, priority=Priority.BACKGROUND_BATCH))
    driver.step()
    driver.add(request("normal", 100, 5))
    plan = driver.step()
    assert plan is not None
    assert (names(plan), plan.copies) == (["normal"], [])
    assert len(plan.preempted) == 2
    assert all(sequence.computed == 0 and not sequence.pages.numbers for sequence in plan.preempted)
    driver.run()
    assert len(driver.ended) == 3


def test_a_higher_priority_takes_a_row_from_a_lower_one() -> None:
    driver = Driver(max_running=1)
    driver.add(request("batch", 100, 20, priority=Priority.BACKGROUND_BATCH))
    driver.step()
    driver.add(request("critical", 100, 5, priority=Priority.CRITICAL_INTERACTIVE))
    assert names(driver.step()) == ["critical"]


def test_equals_are_not_preempted_for_a_newcomer_and_nothing_is_moved_in_vain() -> None:
    driver = Driver(8, prefix_cache=False, max_model_len=128)
    driver.add(request("critical", 60, 20, priority=Priority.CRITICAL_INTERACTIVE))
    driver.add(request("batch", 20, 20, priority=Priority.BACKGROUND_BATCH))
    driver.step()
    assert driver.scheduler.running == 2
    driver.add(request("same", 30, 5, priority=Priority.BACKGROUND_BATCH))
    driver.add(request("big", 120, 5))
    plan = driver.step()
    assert plan is not None
    assert plan.preempted == [], "even without the batch request there is no room for the big one"
    assert set(names(plan)) == {"critical", "batch"}
    driver.run()
    assert len(driver.ended) == 4


def test_an_equal_is_no_victim_even_beside_a_lower_one() -> None:
    driver = Driver(8, prefix_cache=False, max_model_len=128)
    driver.add(request("equal", 60, 20))
    driver.add(request("batch", 20, 20, priority=Priority.BACKGROUND_BATCH))
    driver.step()
    assert driver.scheduler.running == 2
    driver.add(request("big", 120, 5))
    plan = driver.step()
    assert plan is not None
    assert plan.preempted == []


def test_what_waits_for_room_holds_back_lower_priorities_but_not_shorter_equals() -> None:
    driver = Driver(10, prefix_cache=False, max_model_len=160, class_bounds=(32, 64, 128))
    driver.add(request("running", 60, 20))
    driver.step()
    driver.add(request("big", 120, 5))
    driver.add(request("batch", 20, 5, priority=Priority.BACKGROUND_BATCH))
    assert names(driver.step()) == ["running"], "the batch request would fit, but would delay the big one"
    driver.add(request("short", 20, 5))
    assert names(driver.step()) == ["running", "short"]


@pytest.mark.parametrize(("length", "admitted"), [(80, False), (49, False), (48, True)])
def test_admission_leaves_running_sequences_room_to_grow(length: int, admitted: bool) -> None:
    """Eight pages, of which three are taken: five would fit, but one for each of the two to grow into is kept."""
    driver = Driver(8, prefix_cache=False, max_model_len=128)
    driver.add(request("a", 40, 5))
    driver.step()
    driver.add(request("b", length, 5))
    assert ("b" in names(driver.step())) == admitted


def test_classes_earn_only_from_chunks_that_are_no_more_urgent() -> None:
    classes = LengthClasses((10,), 0.5, 16)
    for _ in range(4):
        classes.account([(0, 1, 32)], {1: 2})
    assert not classes.owed(1)
    classes.account([(0, 2, 32)], {1: 2})
    assert classes.owed(1)
    classes.account([(0, 2, 32), (1, 2, 16)], {1: 2})
    assert classes.owed(1), "what it earned and what it got cancel out"
    classes.account([], {})
    assert not classes.owed(1), "nobody waits there any more"


def test_an_overdue_request_is_not_passed_by_younger_ones() -> None:
    driver = Driver(40, prefix_cache=False, max_model_len=600, aging_s=1.0, min_chunk=16, class_bounds=(64, 128, 256))
    critical = Priority.CRITICAL_INTERACTIVE
    for i in range(4):
        driver.add(request(f"early {i}", 60, 40, priority=critical))
    driver.step()
    big = driver.add(request("big", 550, 1, priority=critical))
    for step in range(600):
        if driver.scheduler.waiting < 4:
            driver.add(request(f"late {step}", 60, 40, priority=critical))
        driver.step()
        if big.finish_reason is not None:
            break
    assert big.finish_reason is FinishReason.LENGTH


def test_stop_tokens_end_an_answer_but_not_before_min_tokens() -> None:
    driver = Driver()
    free = alone(request("a", 10, 9), 1000)[0][0]
    driver.add(request("a", 10, 9, stop_token_ids=(free[0], free[4])))
    driver.add(request("b", 10, 9))
    driver.run()
    assert driver.output("a") == free[:1]
    assert driver.ended["a", 0].finish_reason is FinishReason.STOP
    driver.add(request("a", 10, 9, stop_token_ids=(free[0], free[4]), min_tokens=2))
    driver.run()
    assert driver.output("a") == free[:5]


def test_the_context_ends_an_answer() -> None:
    driver = Driver(max_model_len=20)
    driver.add(request("a", 17, 9))
    driver.run()
    assert driver.ended["a", 0].length == 20
    assert driver.ended["a", 0].finish_reason is FinishReason.LENGTH


def test_abort_frees_at_once_waiting_or_running_or_in_a_step() -> None:
    driver = Driver()
    running, waiting = driver.add(request("a", 40, n=2)), driver.add(request("b", 40))
    assert driver.scheduler.abort("b")
    assert waiting.finish_reason is FinishReason.ABORT
    driver.step()
    driver.step(between=lambda: assert_true(driver.scheduler.abort("a")))
    assert running.finish_reason is FinishReason.ABORT
    assert not driver.scheduler.abort("a")
    assert driver.scheduler.idle
    assert driver.book.used == 0
    assert driver.ended == {}
    driver.add(request("a", 40))
    driver.run()
    assert ("a", 0) in driver.ended


def test_a_failed_step_ends_its_sequences_only_and_registers_nothing() -> None:
    driver = Driver(max_running=1)
    driver.add(request("a", 40))
    waiting = driver.add(request("b", 40))
    plan = driver.scheduler.plan(0.0)
    assert plan is not None
    [update] = driver.scheduler.fail(plan, "out of luck")
    assert (update.sequence.request_id, update.finish_reason, update.error) == ("a", FinishReason.ERROR, "out of luck")
    assert (driver.book.used, driver.book.cached) == (0, 0)
    driver.run()
    assert waiting.finish_reason is FinishReason.LENGTH


def test_requests_that_can_not_be_queued_say_why() -> None:
    driver = Driver(max_waiting=2, max_model_len=100)
    with pytest.raises(InvalidRequestError, match="empty"):
        driver.add(request("a", []))
    with pytest.raises(ContextLengthError, match="100 tokens"):
        driver.add(request("a", 100))
    driver.add(request("a", 99))
    with pytest.raises(InvalidRequestError, match="being served"):
        driver.add(request("a", 5))
    driver.add(request("b", 99))
    with pytest.raises(OverloadedError) as overload:
        driver.add(request("c", 5))
    assert overload.value.retry_after == 1.0
    assert driver.scheduler.stats().waiting == 2


def test_plans_are_handed_back_in_turn() -> None:
    driver = Driver()
    driver.add(request("a", 40))
    plan = driver.scheduler.plan(0.0)
    assert plan is not None
    with pytest.raises(ValueError, match="neither completed nor failed"):
        driver.scheduler.plan(0.0)
    with pytest.raises(ValueError, match="not as many"):
        driver.scheduler.complete(plan, [[]], 0.1, 0.1)
    driver.scheduler.complete(plan, [[1]], 0.1, 0.1)
    with pytest.raises(ValueError, match="not the one"):
        driver.scheduler.complete(plan, [[1]], 0.1, 0.1)


def test_a_book_too_small_for_one_sequence_is_refused() -> None:
    with pytest.raises(ConfigError, match="holds 2 pages"):
        Scheduler(SchedulerConfig(max_model_len=33), KvBook(2), "m", StepTimeModel())


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_running": 0},
        {"min_chunk": 100},
        {"min_chunk": 4096},
        {"aging_s": 0.0},
        {"class_share": 0.0},
        {"class_bounds": (5, 5)},
    ],
)
def test_contradicting_limits_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must|rise"):
        SchedulerConfig(max_model_len=100, **wrong)  # type: ignore[arg-type]
