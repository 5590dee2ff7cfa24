"""Runs a scheduler against a fake model with a virtual clock. The fake token is a hash of all ids and the choice.

It also watches what a real engine relies on: rows stay within the pages held, nobody writes to a page that someone else
reads, copies are disjoint, and every token that a row reads was computed by its own sequence's ids.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from forebay.core.request import FinishReason, GenerateRequest, Priority, SamplingParams
from forebay.kv import PAGE_TOKENS, KvBook, ResumePolicy, WindowBook, pages_for
from forebay.kv.moves import Below
from forebay.scheduling import Row, Scheduler, SchedulerConfig, Sequence, SequenceUpdate, StepPlan, StepTimeModel

SECONDS = (0.018, 0.0025, 0.0008, 2e-7)
"""What a step of the fake model costs: about SmolLM2 on two cores."""


def request(name: str, prompt: list[int] | int, max_tokens: int = 4, **options: Any) -> GenerateRequest:
    """A request; a number as prompt gives so many distinct ids of its own."""
    ids = [zlib.crc32(f"{name} {i}".encode()) % 1000 for i in range(prompt)] if isinstance(prompt, int) else prompt
    priority = options.pop("priority", Priority.NORMAL_INTERACTIVE)
    tenant = options.pop("tenant", "default")
    sampling = SamplingParams(max_tokens=max_tokens, **options)
    return GenerateRequest(id=name, prompt_ids=ids, sampling=sampling, priority=priority, tenant=tenant)


def token(ids: list[int], index: int) -> int:
    """What the fake model draws after `ids` for a choice."""
    return zlib.crc32(repr((ids, index)).encode()) % 50


def alone(wanted: GenerateRequest, max_model_len: int) -> dict[int, tuple[list[int], FinishReason]]:
    """Each choice's tokens and end, had nobody else been there."""
    answers = {}
    sampling = wanted.sampling
    for index in range(sampling.n):
        out: list[int] = []
        reason = None
        while reason is None:
            out.append(token([*wanted.prompt_ids, *out], index))
            if out[-1] in sampling.stop_token_ids and len(out) > sampling.min_tokens:
                reason = FinishReason.STOP
            elif len(out) == sampling.max_tokens or len(wanted.prompt_ids) + len(out) == max_model_len:
                reason = FinishReason.LENGTH
        answers[index] = (out, reason)
    return answers


class Driver:
    """One scheduler, its book and a clock that moves by what each step costs."""

    def __init__(
        self,
        pages: int = 2000,
        prefix_cache: bool = True,
        below: Below | None = None,
        policy: ResumePolicy | None = None,
        **config: Any,
    ) -> None:
        """`policy` makes it a model whose attention has a window."""
        config.setdefault("max_model_len", 16 * pages)
        self.config = SchedulerConfig(**config)
        self.book = KvBook(pages, prefix_cache)
        if policy is not None:
            self.book = WindowBook(pages, policy, self.config.max_chunk, prefix_cache)
        self.step_time = StepTimeModel(prior=SECONDS)
        self.scheduler = Scheduler(self.config, self.book, "model", self.step_time, below)
        self.now = 0.0
        self.plans: list[StepPlan] = []
        self.ended: dict[tuple[str, int], Sequence] = {}
        self._kv: dict[tuple[int, int], int] = {}

    def add(self, wanted: GenerateRequest) -> Sequence:
        """Queue a request now."""
        return self.scheduler.add(wanted, self.now)

    def step(self, between: Callable[[], None] | None = None) -> StepPlan | None:
        """One step; `between` is called while it runs. None when there is nothing to do."""
        plan = self.scheduler.plan(self.now)
        if plan is None:
            return None
        self._run(plan)
        sampled = [[self._draw(row, i) for i in range(row.samples)] for row in plan.rows]
        if between is not None:
            between()
        seconds = cost(plan)
        self.now += seconds
        self._note(self.scheduler.complete(plan, sampled, self.now, seconds))
        self.plans.append(plan)
        return plan

    def run(self, most: int = 3000) -> None:
        """Step until everything has ended."""
        for _ in range(most):
            if self.step() is None:
                break
        assert self.scheduler.idle, f"not done after {most} steps"

    def output(self, name: str, index: int = 0) -> list[int]:
        """The tokens of an answer that ended."""
        return self.ended[name, index].output_ids

    def _draw(self, row: Row, i: int) -> int:
        return token(row.sequence.all_ids, i if row.samples > 1 else row.sequence.index)

    def _note(self, updates: list[SequenceUpdate]) -> None:
        for update in updates:
            if update.finish_reason is not None:
                assert update.sequence.finish_reason is update.finish_reason
                self.ended[update.sequence.request_id, update.sequence.index] = update.sequence

    def _run(self, plan: StepPlan) -> None:
        """Write a mark of (all ids so far) for each token, and check the marks that the row reads."""
        sources, targets = {s for s, _ in plan.copies}, [t for _, t in plan.copies]
        assert not sources & set(targets)
        assert len(set(targets)) == len(targets)
        assert len({row.sequence for row in plan.rows}) == len(plan.rows)
        for source, target in plan.copies:
            for slot in range(PAGE_TOKENS):
                self._kv[target, slot] = self._kv.get((source, slot), 0)
        written: set[tuple[int, int]] = set()
        for row in plan.rows:
            self._run_row(row, written)
        assert plan.prefill_tokens == sum(row.tokens for row in plan.rows if not row.decode)
        assert plan.decode_rows == sum(row.decode for row in plan.rows)

    def _run_row(self, row: Row, written: set[tuple[int, int]]) -> None:
        sequence, end = row.sequence, row.start + row.tokens
        assert row.start == sequence.computed
        assert len(sequence.pages.numbers) >= pages_for(end)
        tenant, public = sequence.tenant.encode(), PAGE_TOKENS * sequence.pages.public
        mark = zlib.crc32(b"" if public else tenant)
        for i in range(end):
            if i and i == public:
                mark = zlib.crc32(tenant, mark)
            mark = zlib.crc32(sequence.token_at(i).to_bytes(4, "little"), mark)
            slot = sequence.pages.numbers[i // PAGE_TOKENS], i % PAGE_TOKENS
            if self.book.policy is not None and i <= row.start - self.book.policy.window:
                continue
            assert slot[0] >= 0
            if i >= row.start:
                assert slot not in written
                written.add(slot)
                self._kv[slot] = mark
            else:
                assert self._kv[slot] == mark, f"{sequence.request_id} reads someone else's token at {i}"


def cost(plan: StepPlan) -> float:
    """Seconds of a step of the fake model."""
    a, b, c, d = SECONDS
    return a + b * plan.prefill_tokens + c * plan.decode_rows + d * plan.attention
