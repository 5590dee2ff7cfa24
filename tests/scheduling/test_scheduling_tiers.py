"""Preemption by swap and prefix hits in lower tiers: nothing is lost, nothing moves in vain, answers stay the same."""

from __future__ import annotations

from typing import Any

from tests.scheduling.driver import alone, request
from tests.scheduling.tiered import LowerTiers, TieredDriver

from forebay.core.request import GenerateRequest, Priority

CRITICAL, BATCH, DRAFT = Priority.CRITICAL_INTERACTIVE, Priority.BACKGROUND_BATCH, Priority.SPECULATIVE_DRAFT


def small(host: int = 16, disk: int = 0, delay: int = 1) -> TieredDriver:
    """The older listing's machine: 8 device pages, 16 host pages."""
    return TieredDriver(8, LowerTiers(host, disk), delay, max_model_len=128)


def answers(driver: TieredDriver, *wanted: GenerateRequest) -> None:
    for one in wanted:
        assert driver.output(one.id) == alone(one, driver.config.max_model_len)[0][0]


def test_listing_scenario() -> None:
    driver = small()
    batch = request("batch", 88, max_tokens=30, priority=BATCH)
    driver.add(batch)
    for _ in range(6):
        driver.step()
    assert driver.book.used == 6
    critical = request("critical", 57, max_tokens=4, priority=CRITICAL)
    driver.add(critical)
    plan = driver.step()
    assert plan is not None
    assert [sequence.request_id for sequence in plan.preempted] == ["batch"]
    assert [row.sequence.request_id for row in plan.rows] == ["critical"]
    assert driver.urgent <= 2, "only what is not below yet is copied"
    driver.run()
    answers(driver, batch, critical)
    assert driver.loaded >= 1, "what was given up on the device came back from the host pool"
    assert driver.loaded < 6, "and what was still on the device did not have to"
    assert driver.scheduler.stats().prompt_tokens_computed == 88 + 57, "no prompt token was computed twice"


def start_batch(driver: TieredDriver, name: str = "batch", prompt: int = 88, steps: int = 6, **options: Any) -> Any:
    options.setdefault("priority", BATCH)
    wanted = request(name, prompt, max_tokens=options.pop("max_tokens", 30), **options)
    driver.add(wanted)
    for _ in range(steps):
        driver.step()
    return wanted


def test_nothing_moves_when_the_lower_tier_is_full() -> None:
    """The listing moves what fits, refuses the asker and leaves the victim in pieces."""
    driver = small(host=0)
    batch = start_batch(driver)
    critical = request("critical", 57, priority=CRITICAL)
    driver.add(critical)
    plan = driver.step()
    assert plan is not None
    assert not plan.preempted
    assert [row.sequence.request_id for row in plan.rows] == ["batch"]
    driver.run()
    answers(driver, batch, critical)
    assert driver.urgent == driver.loaded == driver.scheduler.stats().preemptions == 0


def test_several_victims_or_none() -> None:
    """The listing moves the first, finds no room for the second, and refuses the asker for whom it moved the first."""
    driver = small(host=4)
    batches = [start_batch(driver, "a", 28, 1, max_tokens=20), start_batch(driver, "b", 50, 6, max_tokens=14)]
    critical = request("critical", 100, priority=CRITICAL)
    driver.add(critical)
    plan = driver.step()
    assert plan is not None
    assert not plan.preempted
    assert not driver.below.pins
    assert {row.sequence.request_id for row in plan.rows} == {"a", "b"}
    driver.run()
    answers(driver, *batches, critical)
    assert driver.scheduler.stats().recomputed_by == {}


def test_of_equals_the_latest_goes_first() -> None:
    """The listing takes the one that came first, which has done the most."""
    driver = small()
    batches = [start_batch(driver, "a", 30, 3), start_batch(driver, "b", 30, 3)]
    critical = request("critical", 70, priority=CRITICAL)
    driver.add(critical)
    plan = driver.step()
    assert plan is not None
    assert [sequence.request_id for sequence in plan.preempted] == ["b"]
    driver.run()
    answers(driver, *batches, critical)


def test_full_host_pool_cascades_to_disk() -> None:
    driver = small(host=2, disk=16)
    batch = start_batch(driver)
    critical = request("critical", 57, priority=CRITICAL)
    driver.add(critical)
    driver.run()
    answers(driver, batch, critical)
    assert driver.scheduler.stats().preemptions == 1
    assert driver.scheduler.stats().prompt_tokens_computed == 88 + 57
    assert driver.below.disk


def test_victim_partly_moved_is_chosen_again() -> None:
    """The listing marks a victim as preempted after its first block, and never looks at the others again."""
    driver = small()
    batch = start_batch(driver)
    askers = [request(f"critical {i}", 57, priority=CRITICAL) for i in range(3)]
    for asker in askers:
        driver.add(asker)
        driver.run_until(asker.id)
        driver.step()
        driver.step()
    driver.run()
    answers(driver, batch, *askers)
    assert driver.scheduler.stats().preemptions >= 2
    assert driver.scheduler.stats().prompt_tokens_computed == 88 + 3 * 57


def test_draft_is_dropped_and_computed_again() -> None:
    """The listing evicts a draft's blocks and then restores the sequence without them."""
    driver = small(host=0)
    draft = start_batch(driver, "draft", priority=DRAFT)
    critical = request("critical", 57, priority=CRITICAL)
    driver.add(critical)
    driver.run()
    answers(driver, draft, critical)
    assert driver.urgent == 0
    assert driver.scheduler.stats().preemptions == 1
    assert driver.scheduler.stats().prompt_tokens_computed > 88 + 57


def test_equal_priority_is_no_victim() -> None:
    driver = small()
    first = start_batch(driver, priority=CRITICAL)
    second = request("second", 57, priority=CRITICAL)
    driver.add(second)
    driver.run()
    answers(driver, first, second)
    assert driver.scheduler.stats().preemptions == 0


def test_pages_lost_below_are_computed_again() -> None:
    driver = small()
    batch = start_batch(driver)
    critical = request("critical", 57, priority=CRITICAL)
    driver.add(critical)
    driver.step()
    driver.below.lose(batch_page(driver, batch, 5))
    driver.below.lose(batch_page(driver, batch, 3))
    driver.run()
    answers(driver, batch, critical)
    assert driver.scheduler.stats().prompt_tokens_computed > 88 + 57


def test_abort_of_a_preempted_sequence_lets_go_of_its_pages() -> None:
    """The listing drops them on release too; but only by its own list of them."""
    driver = small()
    start_batch(driver)
    driver.add(request("critical", 57, priority=CRITICAL))
    driver.step()
    assert driver.below.pins
    assert driver.scheduler.abort("batch")
    assert not driver.below.pins
    driver.run()


def test_abort_while_pages_are_loaded_keeps_them_until_the_load_ends() -> None:
    driver = warm(delay=3)
    sequence = driver.add(request("again", driver.ended["first", 0].prompt_ids))
    driver.step()
    targets = set(sequence.pages.numbers)
    assert sequence.loading is not None
    assert targets
    driver.scheduler.abort("again")
    other = request("other", 57)
    taken = driver.add(other)
    driver.step()
    assert not targets & set(taken.pages.numbers)
    driver.run()
    answers(driver, other)
    driver.settle()
    assert driver.book.used == 0


def test_lower_tier_hit_is_loaded_while_others_run() -> None:
    driver = warm(delay=3)
    other = request("other", 20, max_tokens=8)
    driver.add(other)
    driver.step()
    again = request("again", driver.ended["first", 0].prompt_ids)
    sequence = driver.add(again)
    for _ in range(3):
        plan = driver.step()
        assert plan is not None
        assert [row.sequence.request_id for row in plan.rows] == ["other"]
    driver.run()
    answers(driver, again, other)
    assert sequence.cached_tokens == 80
    assert sequence.cached_host == 80
    assert driver.loaded == 5


def test_disk_hit_is_told_apart() -> None:
    driver = warm()
    driver.below.disk.update(driver.below.host)
    driver.below.host.clear()
    again = request("again", driver.ended["first", 0].prompt_ids)
    sequence = driver.add(again)
    driver.run()
    answers(driver, again)
    assert (sequence.cached_host, sequence.cached_disk) == (0, 80)


def test_failed_load_takes_back_the_hit() -> None:
    driver = warm(delay=2)
    again = request("again", driver.ended["first", 0].prompt_ids)
    sequence = driver.add(again)
    driver.step()
    for page in sequence.pages.ids[2:]:
        driver.below.lose(page)
    driver.run()
    answers(driver, again)
    assert sequence.cached_tokens == 32
    assert driver.loaded == 2


def test_misses_are_counted_once_for_a_new_prompt() -> None:
    driver = small()
    batch = start_batch(driver, prompt=88)
    assert driver.below.misses == 5
    driver.add(request("critical", 57, priority=CRITICAL))
    driver.run()
    answers(driver, batch)
    assert driver.below.misses == 5 + 3, "what a preempted sequence looks for is its own"


def test_the_same_prefix_is_loaded_once() -> None:
    driver = warm(delay=2, pages=16)
    prompt = driver.ended["first", 0].prompt_ids
    twins = [request(f"twin {i}", prompt) for i in range(2)]
    for twin in twins:
        driver.add(twin)
    driver.run()
    answers(driver, *twins)
    assert driver.loaded == 5


def test_prompt_logprobs_read_no_cache() -> None:
    driver = warm()
    again = request("again", driver.ended["first", 0].prompt_ids, prompt_logprobs=1)
    driver.add(again)
    driver.run()
    assert driver.loaded == 0


def test_tenants_share_nothing_below() -> None:
    driver = warm()
    again = request("again", driver.ended["first", 0].prompt_ids, tenant="other")
    driver.add(again)
    driver.run()
    assert driver.loaded == 0


def test_victim_with_much_to_save_is_written_through_first() -> None:
    """A long victim that isn't below yet holds up no step: the asker waits for the background copy."""
    driver = TieredDriver(200, LowerTiers(400), delay=1, max_model_len=3000, max_step_s=10.0)
    driver.below.refuse = True
    batch = start_batch(driver, prompt=2900, steps=10)
    driver.below.refuse = False
    critical = request("critical", 600, priority=CRITICAL)
    driver.add(critical)
    plan = driver.step()
    assert plan is not None
    assert not plan.preempted
    for _ in range(15):
        plan = driver.step()
    assert driver.scheduler.stats().preemptions == 1
    assert driver.urgent <= 16
    driver.run()
    answers(driver, batch, critical)


def test_idle_sequences_go_down_under_pressure_and_come_back() -> None:
    """The prompt that is passed over is paged out above 85 % use, and goes on where it was."""
    driver = TieredDriver(100, LowerTiers(400), max_model_len=1600, aging_s=1000.0, max_step_tokens=256, max_chunk=256)
    low = start_batch(driver, "low", prompt=800, steps=1)
    high = request("high", 720, max_tokens=15, priority=CRITICAL)
    driver.add(high)
    driver.run()
    answers(driver, low, high)
    counters = driver.scheduler._state.counters
    assert dict(counters.preemptions_by) == {"pressure/background_batch": 1}
    assert driver.scheduler.stats().prompt_tokens_computed == 800 + 720


def batch_page(driver: TieredDriver, wanted: Any, i: int) -> bytes:
    """The id of one of the request's pages."""
    sequence = driver.scheduler._state.requests[wanted.id][0]
    return sequence.pages.ids[min(i, len(sequence.pages.ids) - 1)]


def warm(delay: int = 1, pages: int = 8) -> TieredDriver:
    """A driver whose device has forgotten the prompt of "first" (81 tokens), which is in the host pool."""
    driver = TieredDriver(pages, LowerTiers(64), delay, max_model_len=128)
    driver.add(request("first", 81, max_tokens=2))
    driver.run()
    driver.settle()
    for i in range(pages // 8):
        driver.add(request(f"flush {i}", 126, max_tokens=2))
    driver.run()
    driver.settle()
    driver.loaded = 0
    return driver


def test_tail_that_was_to_be_copied_is_saved_from_where_it_lies() -> None:
    """Preempted in the very plan that splits its last page from its sibling's, a choice takes the right bytes along."""
    driver = TieredDriver(8, LowerTiers(32), max_model_len=128)
    pair = request("pair", 88, max_tokens=12, priority=BATCH, n=2)
    driver.add(pair)
    while driver.book.used < 6 or len(driver.scheduler._state.running) < 2:
        driver.step()
    critical = request("critical", 57, priority=CRITICAL)
    driver.add(critical)
    plan = driver.step()
    assert plan is not None
    assert {sequence.index for sequence in plan.preempted} == {0, 1}
    driver.run()
    answers(driver, critical)
    for index, (tokens, _) in alone(pair, 128).items():
        assert driver.output("pair", index) == tokens


def test_a_row_short_of_a_page_forces_nobody_out_whose_pages_find_no_room() -> None:
    """It waits while others get on; what is on the device alone stays there, and no token is computed twice."""
    driver = TieredDriver(10, LowerTiers(0), max_model_len=128)
    first = start_batch(driver, "first", prompt=60, steps=3, max_tokens=30, priority=CRITICAL)
    second = start_batch(driver, "second", prompt=75, steps=1, max_tokens=4)
    third = start_batch(driver, "third", prompt=10, steps=1, max_tokens=20)
    driver.run()
    answers(driver, first, second, third)
    assert driver.scheduler.stats().preemptions == 0
    assert driver.scheduler.stats().prompt_tokens_computed == 60 + 75 + 10


def test_a_victim_with_room_below_goes_before_one_of_lower_rank_without() -> None:
    driver = TieredDriver(12, LowerTiers(3), max_model_len=192)
    driver.below.refuse = True
    large = start_batch(driver, "large", prompt=100, steps=4, max_tokens=60)
    driver.below.refuse = False
    small_one = start_batch(driver, "small", prompt=20, steps=1, max_tokens=60, priority=Priority.NORMAL_INTERACTIVE)
    critical = start_batch(driver, "critical", prompt=28, steps=1, max_tokens=40, priority=CRITICAL)
    while not driver.scheduler.stats().preemptions:
        driver.step()
    assert [sequence.request_id for sequence in driver.plans[-1].preempted] == ["small"]
    driver.run()
    answers(driver, large, small_one, critical)


def test_rows_grow_only_while_all_can_still_end() -> None:
    """Both take four of ten pages, may come to want seven each, and there is no room below: one waits for the other."""
    driver = TieredDriver(10, LowerTiers(0), max_model_len=128)
    pair = [start_batch(driver, name, prompt=50, steps=1, max_tokens=50) for name in ("first", "second")]
    driver.run()
    answers(driver, *pair)
    stats = driver.scheduler.stats()
    assert (stats.preemptions, stats.recomputed_by, stats.prompt_tokens_computed) == (0, {}, 100)


def test_nobody_begins_who_could_keep_others_from_ending() -> None:
    driver = TieredDriver(12, LowerTiers(0), max_model_len=192)
    first = start_batch(driver, "first", prompt=20, steps=2, max_tokens=170)
    second = start_batch(driver, "second", prompt=120, steps=1, max_tokens=60)
    assert driver.scheduler.running == 1, "second fits now, but then neither would have its last pages"
    driver.run()
    answers(driver, first, second)
    assert driver.scheduler.stats().preemptions == 0


def test_the_page_that_choices_split_counts_when_they_come_to_their_ends() -> None:
    """Both begin with the prompt's last page, which holds one token: one of them wants a page more than it lacks."""
    driver = TieredDriver(12, LowerTiers(1), max_model_len=192, max_running=4)
    driver.add(request("narrow", 16, max_tokens=18, n=2))
    driver.add(request("wide", 113, max_tokens=17, n=2))
    driver.run()
    assert driver.scheduler.stats().recomputed_by == {}


def test_room_below_lets_both_run() -> None:
    driver = TieredDriver(12, LowerTiers(10), max_model_len=192)
    first = start_batch(driver, "first", prompt=20, steps=2, max_tokens=170)
    second = start_batch(driver, "second", prompt=120, steps=1, max_tokens=60)
    assert driver.scheduler.running == 2
    driver.run()
    answers(driver, first, second)
    assert driver.scheduler.stats().recomputed_by == {}


def test_when_room_below_is_gone_the_lowest_rank_is_computed_again() -> None:
    """Both were let in while there was room below for one. It went; nobody can go on, and one has to begin anew."""
    driver = TieredDriver(10, LowerTiers(32), max_model_len=128)
    pair = [start_batch(driver, name, prompt=50, steps=1, max_tokens=50) for name in ("first", "second")]
    driver.below.refuse = True
    driver.below.host.clear()
    driver.run()
    answers(driver, *pair)
    stats = driver.scheduler.stats()
    assert stats.preemptions_by == {"growth/background_batch": 1}
    assert set(stats.recomputed_by) == {"no_room"}
    assert driver.ended["first", 0].reached == 99


def test_while_room_below_is_to_come_nobody_is_given_up() -> None:
    driver = TieredDriver(10, LowerTiers(32), max_model_len=128)
    pair = [start_batch(driver, name, prompt=50, steps=1, max_tokens=50) for name in ("first", "second")]
    driver.below.refuse = driver.below.spilling = True
    driver.below.host.clear()
    for _ in range(200):
        driver.step()
    assert driver.step() is None
    assert driver.scheduler.stats().preemptions == 0
    driver.below.refuse = driver.below.spilling = False
    driver.run()
    answers(driver, *pair)
    assert driver.scheduler.stats().recomputed_by == {}


def test_a_victims_own_pages_below_are_no_room_for_it() -> None:
    """Five of its six pages fill the pool. Copying the last one down would push out one of the five."""
    driver = small(host=5)
    batch = start_batch(driver)
    assert len(driver.below.host) == 5
    critical = request("critical", 57, priority=CRITICAL)
    driver.add(critical)
    driver.run()
    answers(driver, batch, critical)
    assert driver.scheduler.stats().prompt_tokens_computed == 88 + 57
    assert driver.scheduler.stats().recomputed_by == {}


def test_a_page_on_its_way_down_has_its_room_when_its_sequence_leaves() -> None:
    """Others fill the pool before the copy ends."""
    driver = small(host=6, delay=4)
    batch = start_batch(driver, steps=1)
    driver.step()
    critical = request("critical", 57, priority=CRITICAL)
    driver.add(critical)
    plan = driver.step()
    assert plan is not None
    driver.run()
    answers(driver, batch, critical)
    assert driver.scheduler.stats().recomputed_by == {}


def test_choices_beyond_the_running_rows_wait_with_what_they_have() -> None:
    driver = TieredDriver(40, LowerTiers(64), max_model_len=128, max_running=2)
    wanted = request("three", 40, max_tokens=20, n=3)
    driver.add(wanted)
    driver.run()
    assert driver.scheduler.stats().recomputed_by == {}
    for index, (tokens, _) in alone(wanted, 128).items():
        assert driver.output("three", index) == tokens


def test_what_a_preempted_draft_computes_again_is_counted() -> None:
    driver = small(host=0)
    draft = start_batch(driver, "draft", priority=DRAFT)
    driver.add(request("critical", 57, priority=CRITICAL))
    driver.run()
    answers(driver, draft)
    assert set(driver.scheduler.stats().recomputed_by) == {"draft"}


def test_a_wait_of_hours_protects_no_longer_than_its_class_allows() -> None:
    """A batch sequence is out of reach of CRITICAL for one `aging_s` of getting on, not for hours."""
    driver = TieredDriver(8, LowerTiers(64), max_model_len=128, aging_s=0.2, target_itl_s=0.05)
    driver.add(request("blocker", 100, max_tokens=28, priority=CRITICAL))
    batch = request("batch", 60, max_tokens=68, priority=BATCH)
    sequence = driver.add(batch)
    driver.step()
    driver.now += 7200
    driver.run_until("blocker")
    while not sequence.output_ids:
        driver.step()
    began = driver.now
    driver.add(request("urgent", 100, max_tokens=2, priority=CRITICAL))
    while not driver.scheduler.stats().preemptions:
        assert driver.step() is not None
    assert 0.1 < driver.now - began < 0.3
    driver.run()
    answers(driver, batch)


def test_a_victim_that_waited_long_can_be_preempted_again_once_it_has_run() -> None:
    """A wait protects for as long as it lasted, not for the rest of the request's life."""
    driver = TieredDriver(8, LowerTiers(64), max_model_len=128, aging_s=0.5)
    driver.add(request("blocker", 100, max_tokens=28, priority=CRITICAL))
    batch = request("batch", 60, max_tokens=68, priority=BATCH)
    sequence = driver.add(batch)
    driver.step()
    driver.now += 1.6
    driver.run_until("blocker")
    while not sequence.output_ids:
        driver.step()
    assert sequence.level(driver.now, 0.5) == 0
    urgent = request("urgent", 100, max_tokens=2, priority=CRITICAL)
    driver.add(urgent)
    assert not driver.step().preempted  # type: ignore[union-attr]
    while not driver.scheduler.stats().preemptions:
        assert driver.step() is not None
    assert 0 < sequence.unserved(driver.now) < 1.6
    driver.run()
    answers(driver, batch, urgent)
