"""One engine: scheduler, model and sampler, one step at a time. No sockets and no process: `worker.py` drives it.

A step is plan → pages copied → forward → sample → complete. An error in a step ends the requests of that step with a
message and frees what they held; the engine goes on, unless steps keep failing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from forebay.core.errors import ForebayError, OverloadedError
from forebay.core.messages import (
    IntegrityReport,
    ModelInfo,
    StepSample,
    TokenLogprobs,
    TokenOutput,
    WorkerStats,
)
from forebay.core.request import FinishReason, GenerateRequest
from forebay.engine.constraints import Constraints
from forebay.engine.logprobs import drawn_logprobs
from forebay.engine.moves import PageMoves
from forebay.engine.runner import ModelRunner, StepResult
from forebay.engine.sampler import Draw, sample
from forebay.engine.work import Work
from forebay.kv import KvBook
from forebay.scheduling import Scheduler, SequenceUpdate, StepPlan

log = logging.getLogger(__name__)

_SAMPLES_KEPT = 512
"""Steps remembered between two statistics messages."""

_FAILURES_ALLOWED = 3
"""This many failed steps in a row end the worker: something outlives the requests that are given up."""


class Engine:
    """Carries requests from prompt to last token. Not thread-safe: one thread calls it."""

    def __init__(
        self,
        scheduler: Scheduler,
        book: KvBook,
        runner: ModelRunner,
        info: ModelInfo,
        clock: Callable[[], float],
        *,
        constraints: Constraints,
        work: Work,
        moves: PageMoves | None = None,
    ) -> None:
        """`work` is told of every step; `moves` are the tiers below the device that `scheduler` plans with."""
        self.info = info
        self._constraints = constraints
        self._scheduler = scheduler
        self._book = book
        self._runner = runner
        self._moves = moves
        self._work = work
        self._stalled = False
        self._planning_s = 0.0
        self._clock = clock
        self._samples: deque[StepSample] = deque(maxlen=_SAMPLES_KEPT)
        self._prompt_logprobs: dict[str, dict[int, TokenLogprobs]] = {}
        self._introduced: set[tuple[str, int]] = set()
        self._pending: list[TokenOutput] = []
        self._failures = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return bool(self._pending) or self._scheduler.running + self._scheduler.waiting > 0

    @property
    def stalled(self) -> bool:
        """Whether the last step found nothing that could run: only a new message or the end of a page move helps."""
        return self._stalled

    @property
    def wake_fd(self) -> int | None:
        """Readable when a page move has ended; None where the device is the only tier."""
        return None if self._moves is None else self._moves.fd

    @property
    def planning_s(self) -> float:
        """Seconds that planning the last step took, with the urgent copies of whom it preempts."""
        return self._planning_s

    @property
    def moves(self) -> PageMoves | None:
        """The tiers below the device, where there are any."""
        return self._moves

    @property
    def work(self) -> Work:
        """What the steps have done, and what the model costs."""
        return self._work

    def forget_device(self) -> None:
        """Give up what the prefix cache holds on the device alone; tiers below keep what they have."""
        self._book.clear()

    def mark_public(self, token_ids: list[int]) -> None:
        """Let all tenants share the full pages of prompts that begin with these tokens, from the next request on."""
        self._scheduler.mark_public(token_ids)

    def close(self, report: Callable[[float], None] = lambda _: None) -> None:
        """End the page moves; what should be on disk is written, for seconds at most. No step may follow.

        `report` is told the share of the writing that is done, while there is any.
        """
        if self._moves is not None:
            self._moves.close(report)

    def submit(self, request: GenerateRequest) -> None:
        """Take a request. What makes it impossible is answered by its first output, with an error."""
        self._stalled = False
        try:
            self._check_ids(request)
            if request.sampling.grammar is not None:
                self._constraints.admit(request.sampling.grammar)
            self._scheduler.add(request, self._clock())
        except (ForebayError, ValueError) as error:
            if not isinstance(error, OverloadedError):
                log.warning("request %s refused: %s", request.id, error)
            self._pending += [
                TokenOutput(request_id=request.id, index=index, finish_reason=FinishReason.ERROR, error=str(error))
                for index in range(request.sampling.n)
            ]
            return
        if request.sampling.prompt_logprobs is not None:
            self._prompt_logprobs[request.id] = {}

    def _check_ids(self, request: GenerateRequest) -> None:
        if not request.prompt_ids:
            raise ValueError("The prompt is empty.")
        if min(request.prompt_ids) < 0 or max(request.prompt_ids) >= self.info.vocab_size:
            raise ValueError(f"A token id of the prompt is outside the vocabulary of {self.info.vocab_size} tokens.")

    def abort(self, request_id: str) -> None:
        """Forget a request and free its pages now. Unknown ids are ignored."""
        self._stalled = False
        self._scheduler.abort(request_id)
        self._forget(request_id)

    def step(self) -> list[TokenOutput]:
        """Run one step and give what it produced; an empty list when there was nothing to do."""
        outputs, self._pending = self._pending, []
        plan, started = self._plan()
        if plan is None:
            return outputs
        try:
            result = self._runner.run(plan)
            draws, dead = self._constraints.constrain(_draws(plan))
            drawn = sample(result.logits, draws, self._runner.kernels)
        except Exception as error:
            self._failures += 1
            log.exception("a step of %d rows failed", len(plan.rows))
            if self._failures >= _FAILURES_ALLOWED:
                raise
            message = f"The engine failed while computing this request ({type(error).__name__}). It may be sent again."
            return outputs + self._fail(plan, message)
        self._failures = 0
        produced = self._complete(plan, result, draws, drawn, started)
        for at, message in dead.items():
            produced = self._give_up(draws[at].request_id, message, produced)
        return outputs + produced

    def _plan(self) -> tuple[StepPlan | None, float]:
        """The next step, with its page moves begun and its urgent ones done, and when it was planned."""
        if self._moves is not None:
            self._moves.end(self._scheduler)
        started = self._clock()
        plan = self._scheduler.plan(started)
        if self._moves is not None:
            self._moves.begin(self._scheduler.take_moves())
        self._stalled = plan is None
        self._planning_s = self._clock() - started
        return plan, started

    def _give_up(self, request_id: str, message: str, produced: list[TokenOutput]) -> list[TokenOutput]:
        """End a request with an error in place of what the step produced for it."""
        own = {output.index for output in produced if output.request_id == request_id}
        own |= {index for other, index in self._introduced if other == request_id}
        self.abort(request_id)
        return [output for output in produced if output.request_id != request_id] + [
            TokenOutput(request_id=request_id, index=index, finish_reason=FinishReason.ERROR, error=message)
            for index in sorted(own)
        ]

    def _complete(
        self, plan: StepPlan, result: StepResult, draws: list[Draw], drawn: list[int], started: float
    ) -> list[TokenOutput]:
        self._keep_prompt_logprobs(plan, result)
        logprobs = drawn_logprobs(result.logits, draws, drawn)
        ended = self._clock()
        per_row, per_sequence, tokens = [], {}, iter(zip(drawn, logprobs, strict=True))
        for row in plan.rows:
            pairs = [next(tokens) for _ in range(row.samples)]
            per_row.append([token for token, _ in pairs])
            for choice, (_, found) in enumerate(pairs, start=row.sequence.index):
                per_sequence[row.sequence.request_id, choice] = found
        self._work.add(plan, ended - started)
        self._samples.append(StepSample(plan.predicted_s, ended - started, plan.prefill_tokens, plan.decode_rows))
        updates = self._scheduler.complete(plan, per_row, ended, ended - started)
        return [self._output(update, per_sequence) for update in updates]

    def _output(self, update: SequenceUpdate, logprobs: dict[tuple[str, int], TokenLogprobs | None]) -> TokenOutput:
        sequence = update.sequence
        key = (sequence.request_id, sequence.index)
        output = TokenOutput(
            request_id=sequence.request_id,
            index=sequence.index,
            token_ids=update.token_ids,
            finish_reason=update.finish_reason,
            error=update.error,
        )
        found = logprobs.get(key)
        if found is not None and update.token_ids:
            output.logprobs = [found]
        if key not in self._introduced:
            self._introduce(output, update)
        if update.finish_reason is not None:
            self._introduced.discard(key)
            self._constraints.forget(*key)
        return output

    def _introduce(self, output: TokenOutput, update: SequenceUpdate) -> None:
        """Add to a choice's first output what is said once."""
        sequence = update.sequence
        self._introduced.add((sequence.request_id, sequence.index))
        output.cached_tokens = sequence.cached_tokens
        output.cached_host, output.cached_disk = sequence.cached_host, sequence.cached_disk
        if sequence.first_scheduled is not None:
            output.queued_s = sequence.first_scheduled - sequence.arrival
        kept = self._prompt_logprobs.pop(sequence.request_id, None) if sequence.index == 0 else None
        if kept is not None:
            output.prompt_logprobs = [kept.get(position) for position in range(len(sequence.prompt_ids))]

    def _keep_prompt_logprobs(self, plan: StepPlan, result: StepResult) -> None:
        for index, found in result.prompt_logprobs.items():
            row = plan.rows[index]
            kept = self._prompt_logprobs.get(row.sequence.request_id)
            if kept is not None:
                kept.update(enumerate(found, start=row.start + 1))

    def _fail(self, plan: StepPlan, message: str) -> list[TokenOutput]:
        return [self._output(update, {}) for update in self._scheduler.fail(plan, message)]

    def _forget(self, request_id: str) -> None:
        self._constraints.forget(request_id)
        self._prompt_logprobs.pop(request_id, None)
        self._introduced = {key for key in self._introduced if key[0] != request_id}
        self._pending = [output for output in self._pending if output.request_id != request_id]

    def stats(self) -> WorkerStats:
        """Gauges and counters as of now, with the steps since the last call."""
        stats = self._scheduler.stats()
        stats.steps = list(self._samples)
        self._work.add_to(stats)
        if self._moves is not None and stats.tiers is not None:
            self._moves.add_to(stats.tiers)
        self._samples.clear()
        return stats

    def check(self, check_id: int) -> IntegrityReport:
        """Recount every page."""
        return IntegrityReport(
            id=check_id,
            problems=self._book.check() + ([] if self._moves is None else self._moves.check()),
            pages_total=self._book.total,
            pages_used=self._book.used,
            pages_cached=self._book.cached,
            sequences=self._scheduler.running + self._scheduler.waiting,
        )


def _draws(plan: StepPlan) -> list[Draw]:
    draws, logits_row = [], 0
    for row in plan.rows:
        if not row.samples:
            continue
        sequence = row.sequence
        draws += [
            Draw(logits_row, sequence.sampling, choice, sequence.prompt_ids, sequence.output_ids, sequence.request_id)
            for choice in range(sequence.index, sequence.index + row.samples)
        ]
        logits_row += 1
    return draws
