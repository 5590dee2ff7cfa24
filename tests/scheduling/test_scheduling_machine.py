"""Random traffic through a small scheduler: each answer is what the request gets alone, whatever is preempted."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.scheduling.driver import Driver, alone, request

from forebay.core.request import GenerateRequest, Priority

MAX_MODEL_LEN = 96
RELAXED = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[int, GenerateRequest, int | None]]:
    """Requests with the step at which each comes and, for some, after how many steps its client goes away."""
    found = []
    for number in range(draw(st.integers(1, 9))):
        prefix = draw(st.sampled_from([0, 16, 40, 64]))
        prompt = [7] * prefix + [number] * draw(st.integers(1, 24))
        wanted = request(
            f"r{number}",
            prompt,
            max_tokens=draw(st.integers(1, 40)),
            priority=draw(st.sampled_from(Priority)),
            tenant=draw(st.sampled_from("ab")),
            n=draw(st.sampled_from([1, 1, 1, 2, 4])),
            stop_token_ids=tuple(draw(st.lists(st.integers(0, 49), max_size=2))),
            min_tokens=draw(st.sampled_from([0, 3])),
            prompt_logprobs=draw(st.sampled_from([None, None, 0])),
        )
        leaves = draw(st.none() | st.none() | st.integers(0, 20))
        found.append((draw(st.integers(0, 25)), wanted, leaves))
    return found


@RELAXED
@given(requests(), st.integers(6, 30), st.booleans(), st.integers(1, 6), st.sampled_from([0.1, 1.0, 100.0]))
def test_answers_do_not_depend_on_company(
    traffic: list[tuple[int, GenerateRequest, int | None]], pages: int, prefix_cache: bool, rows: int, aging: float
) -> None:
    driver = Driver(
        pages,
        prefix_cache,
        max_model_len=MAX_MODEL_LEN,
        max_running=rows,
        aging_s=aging,
        min_chunk=16,
        max_chunk=48,
        max_step_tokens=80,
        class_bounds=(8, 24, 60),
    )
    gone: set[str] = set()
    for step in range(4000):
        for at, wanted, _ in traffic:
            if at == step:
                driver.add(wanted)
        leaving = [wanted.id for at, wanted, after in traffic if after is not None and at + after == step]

        def leave(leaving: list[str] = leaving) -> None:
            gone.update(name for name in leaving if driver.scheduler.abort(name))

        # Some clients go away before a step is planned, some while it runs.
        if step % 2:
            leave()
        driver.step(between=leave)
        assert driver.book.check() == []
        assert driver.scheduler.running <= rows
        if driver.scheduler.idle and step > 50:
            break
    assert driver.scheduler.idle, "not all requests ended"
    assert driver.book.used == 0
    for _, wanted, _ in traffic:
        if wanted.id not in gone:
            for index, (tokens, reason) in alone(wanted, MAX_MODEL_LEN).items():
                ended = driver.ended[wanted.id, index]
                assert (ended.output_ids, ended.finish_reason) == (tokens, reason)


@settings(RELAXED, max_examples=20)
@given(
    st.lists(st.tuples(st.integers(1, 2500), st.integers(1, 20), st.sampled_from(Priority)), min_size=1, max_size=8),
    st.sampled_from([0.02, 0.05, 0.5, 2.0]),
)
def test_chunks_and_steps_keep_their_bounds(prompts: list[tuple[int, int, Priority]], target: float) -> None:
    driver = Driver(2000, max_model_len=4000, target_itl_s=target, max_step_tokens=2048, max_chunk=1024)
    for i, (length, answer, priority) in enumerate(prompts):
        driver.add(request(str(i), length, answer, priority=priority))
    driver.run()
    config = driver.config
    for plan in driver.plans:
        chunks = [row for row in plan.rows if not row.decode]
        decode_s = driver.step_time.predict(0, plan.decode_rows, sum(r.start + 1 for r in plan.rows if r.decode))
        limit = max(target, 1.5 * decode_s) if plan.decode_rows else config.max_step_s
        assert plan.prefill_tokens <= config.max_step_tokens
        assert plan.predicted_s <= limit * 1.2 or len(chunks) == 1, "only the guaranteed chunk may break the limit"
        for row in chunks:
            ends = row.start + row.tokens == row.sequence.length or row.samples
            assert row.tokens <= config.max_chunk
            assert ends or (row.start + row.tokens) % 16 == 0
            assert ends or row.tokens >= config.min_chunk or (plan.decode_rows and len(chunks) == 1)
