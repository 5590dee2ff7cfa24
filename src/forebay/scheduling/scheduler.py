"""Which sequences run in the next step, and what follows from it. Pure: the clock is an argument, no token is
computed."""

from __future__ import annotations

from forebay.core.errors import ConfigError, ContextLengthError, InvalidRequestError, OverloadedError
from forebay.core.messages import WorkerStats
from forebay.core.request import FinishReason, GenerateRequest
from forebay.kv import KvBook, page_root
from forebay.kv.identity import PUBLIC
from forebay.kv.moves import Below, PagePlan
from forebay.kv.public import PublicPrefixes
from forebay.scheduling.admission import count_cached
from forebay.scheduling.completion import advance
from forebay.scheduling.config import SchedulerConfig
from forebay.scheduling.draft import Draft
from forebay.scheduling.plan import SequenceUpdate, StepPlan
from forebay.scheduling.preemption import grow_or_preempt, unblock
from forebay.scheduling.prefill import PrefillStage
from forebay.scheduling.pressure import relieve
from forebay.scheduling.sequence import Sequence
from forebay.scheduling.state import State
from forebay.scheduling.step_time import StepTimeModel
from forebay.scheduling.tiering import Tiering


class Scheduler:
    """The queue and the running sequences of one worker. Use from one thread: `plan`, run the step, `complete` or
    `fail`."""

    def __init__(
        self,
        config: SchedulerConfig,
        book: KvBook,
        fingerprint: str,
        step_time: StepTimeModel,
        below: Below | None = None,
    ) -> None:
        """`below` are the tiers below the device, which need `book`'s prefix cache; without them what is preempted is
        computed again. Raises ConfigError when `book` has no room for one sequence of `config.max_model_len` tokens.
        """
        most = book.most_pages(config.max_model_len)
        if most > book.total:
            raise ConfigError(
                f"The KV memory holds {book.total} pages, but one sequence of {config.max_model_len} tokens takes "
                f"{most}. Give more KV memory or a shorter context."
            )
        tiers = Tiering(below, book, config.retention) if below is not None and book.prefix_cache else None
        self._state = State(config, book, tiers)
        self._step_time = step_time
        self._fingerprint = fingerprint
        self._roots: dict[str, bytes] = {}
        self._public = PublicPrefixes(page_root(fingerprint, PUBLIC))
        self._arrived = 0
        self._in_flight: StepPlan | None = None

    def add(self, request: GenerateRequest, now: float) -> Sequence:
        """Queue a request. Raises ContextLengthError, InvalidRequestError (empty prompt, id in use) or
        OverloadedError."""
        state = self._state
        self._refuse(request)
        pages = state.book.open(
            self._root(request.tenant),
            reuse=request.sampling.prompt_logprobs is None,
            public=self._public.pages_of(request.prompt_ids),
            public_root=self._public.root,
        )
        # However long it waited, it is out of reach of the highest priority for one `aging_s` of getting on.
        credit = (request.priority + 1) * state.config.aging_s
        sequence = Sequence(request, now, self._arrived, pages, choices=request.sampling.n, most_credit_s=credit)
        self._arrived += 1
        state.requests[request.id] = [sequence]
        state.wait(sequence, now)
        return sequence

    def mark_public(self, tokens: list[int]) -> int:
        """Let all tenants share the full pages of prompts that begin with these tokens, from the next request on;
        returns how many pages that are."""
        return self._public.mark(tokens)

    def abort(self, request_id: str) -> bool:
        """Forget a request at once and free its pages; also while its step runs. False when the id is unknown.

        Pages are given out by `plan` only, so a running step may go on writing to those freed here.
        """
        sequences = list(self._state.requests.get(request_id, ()))
        for sequence in sequences:
            self._state.finish(sequence, FinishReason.ABORT)
        return bool(sequences)

    def plan(self, now: float) -> StepPlan | None:
        """The next step, or None when there is nothing to do. Raises ValueError while a plan is not handed back.

        First a row for each answer in progress, then prefill chunks in the order and up to the limits of
        `PrefillStage` and `ChunkBudget`.
        """
        if self._in_flight is not None:
            raise ValueError("the last plan was neither completed nor failed")
        policy = self._state.book.policy
        draft = Draft(self._step_time, now, None if policy is None else policy.window)
        in_progress = self._plan_decode(draft)
        if in_progress or len(self._state.queue):
            PrefillStage(self._state, draft, in_progress).fill()
        relieve(self._state, draft)
        if not draft.rows:
            unblock(self._state, draft)
            return None
        self._in_flight = draft.plan()
        return self._in_flight

    def complete(self, plan: StepPlan, sampled: list[list[int]], now: float, actual_s: float) -> list[SequenceUpdate]:
        """Take in a step's result: `sampled[i]` are the tokens drawn for `plan.rows[i]`, as many as its `samples`.

        One update for each choice that got a token, in row order; none for aborted sequences. `actual_s` is the time
        of the step, for the step-time model. Raises ValueError for tokens that don't match the plan.
        """
        if [row.samples for row in plan.rows] != [len(tokens) for tokens in sampled]:
            raise ValueError("the tokens sampled are not as many as the plan's rows ask for")
        self._hand_back(plan)
        self._step_time.observe(plan.prefill_tokens, plan.decode_rows, plan.attention, actual_s)
        updates: list[SequenceUpdate] = []
        for row, tokens in zip(plan.rows, sampled, strict=True):
            if row.sequence in self._state.running:
                updates += advance(self._state, row, tokens, now)
        return updates

    def fail(self, plan: StepPlan, message: str) -> list[SequenceUpdate]:
        """The step raised: its sequences end with ERROR and their pages are freed; the others go on.

        What the step wrote is not registered in the prefix cache.
        """
        self._hand_back(plan)
        failed = [row.sequence for row in plan.rows if row.sequence in self._state.running]
        for sequence in failed:
            self._state.finish(sequence, FinishReason.ERROR)
        return [SequenceUpdate(sequence, [], FinishReason.ERROR, message) for sequence in failed]

    def take_moves(self) -> PagePlan:
        """The page moves that belong to the plan of now, or to none; to be called once after each `plan`."""
        return PagePlan() if self._state.tiers is None else self._state.tiers.take()

    def landed(self, ticket: int, good: int) -> None:
        """A load has ended with its first `good` pages intact; what is missing is computed. Between steps only.

        Raises KeyError for a load that is not under way.
        """
        tiers = self._moving()
        sequence = tiers.landed(ticket, good)
        if sequence is not None:
            tiers.counts.restored += bool(sequence.parked)
            tiers.unpark(sequence)
            count_cached(self._state, sequence)

    def written(self, page: bytes) -> None:
        """A write-through has ended, well or not. Raises KeyError for one that is not under way."""
        self._moving().written(page)

    @property
    def moving(self) -> bool:
        """Whether background moves are under way."""
        return self._state.tiers is not None and self._state.tiers.moving

    @property
    def running(self) -> int:
        """Sequences that hold pages."""
        return len(self._state.running)

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        return len(self._state.queue)

    @property
    def waiting_by_class(self) -> list[int]:
        """Waiting sequences in each length class, shortest first."""
        return self._state.queue.counts()

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not self._state.requests

    def stats(self) -> WorkerStats:
        """Gauges and counters; `steps` is left to the engine."""
        book, counters = self._state.book, self._state.counters
        return WorkerStats(
            running=self.running,
            waiting=self.waiting,
            waiting_by_class=self.waiting_by_class,
            pages_total=book.total,
            pages_used=book.used,
            pages_cached=book.cached,
            prompt_tokens_computed=counters.prompt_computed,
            prompt_tokens_cached=counters.prompt_cached,
            generation_tokens=counters.generated,
            prefix_queries_tokens=counters.prefix_queried,
            prefix_hits_tokens=counters.prompt_cached,
            preemptions=counters.preemptions,
            preemptions_by=dict(counters.preemptions_by),
            recomputed_by=dict(+counters.recomputed_by),
            tiers=None if self._state.tiers is None else self._state.tiers.stats(),
            evictions=book.evictions,
        )

    def _plan_decode(self, draft: Draft) -> list[Sequence]:
        """Add the decode rows; returns the running sequences that still prefill."""
        state = self._state
        decoding: list[Sequence] = []
        in_progress: list[Sequence] = []
        for sequence in state.running:
            if sequence.loading is None:
                (decoding if sequence.decoding else in_progress).append(sequence)
        if state.book.available < len(decoding):
            decoding.sort(key=lambda sequence: state.rank(sequence, draft.now))
        for sequence in decoding:
            if sequence in state.running:
                copies = grow_or_preempt(state, draft, sequence, sequence.length)
                if copies is not None:
                    draft.add_decode(sequence, copies)
        return [sequence for sequence in in_progress if sequence in state.running]

    def _moving(self) -> Tiering:
        if self._state.tiers is None:
            raise KeyError("there are no tiers below the device")
        return self._state.tiers

    def _hand_back(self, plan: StepPlan) -> None:
        if plan is not self._in_flight:
            raise ValueError("this plan is not the one that was handed out last")
        self._in_flight = None
        self._state.book.settle()

    def _refuse(self, request: GenerateRequest) -> None:
        """Raise if the request can't be queued."""
        config, queue = self._state.config, self._state.queue
        if request.id in self._state.requests:
            raise InvalidRequestError(f"A request with the id {request.id} is being served already.")
        if request.tenant == PUBLIC:
            raise InvalidRequestError("A request belongs to a tenant, whose name is not empty.")
        if not request.prompt_ids:
            raise InvalidRequestError("The prompt is empty: there is nothing to continue.", "prompt")
        if len(request.prompt_ids) >= config.max_model_len:
            raise ContextLengthError(len(request.prompt_ids), config.max_model_len)
        if len(queue) >= config.max_waiting:
            wait = self._step_time.predict(queue.tokens, 0, 0)
            raise OverloadedError(
                f"{len(queue)} requests are waiting, which is the most allowed.", max(1.0, round(wait, 1))
            )

    def _root(self, tenant: str) -> bytes:
        if tenant not in self._roots:
            self._roots[tenant] = page_root(self._fingerprint, tenant)
        return self._roots[tenant]
