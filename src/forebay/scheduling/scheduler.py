"""Which sequences run in the next step, and what follows from it. Pure: the clock is an argument, nothing here computes a token."""

from __future__ import annotations

from forebay.core.messages import WorkerStats
from forebay.core.request import GenerateRequest
from forebay.kv import KvBook
from forebay.scheduling.config import SchedulerConfig
from forebay.scheduling.plan import SequenceUpdate, StepPlan
from forebay.scheduling.sequence import Sequence
from forebay.scheduling.step_time import StepTimeModel


class Scheduler:
    """The queue and the running sequences of one worker. Use from one thread: `plan`, run the step, `complete` or `fail`."""

    def __init__(self, config: SchedulerConfig, book: KvBook, fingerprint: str, step_time: StepTimeModel) -> None:
        """Raises ConfigError when `book` has no room for one sequence of `config.max_model_len` tokens."""
        raise NotImplementedError

    def add(self, request: GenerateRequest, now: float) -> Sequence:
        """Queue a request. Raises ContextLengthError, InvalidRequestError (empty prompt, id in use) or OverloadedError."""
        raise NotImplementedError

    def abort(self, request_id: str) -> bool:
        """Forget a request at once and free its pages; also while its step runs. False when the id is unknown."""
        raise NotImplementedError

    def plan(self, now: float) -> StepPlan | None:
        """The next step, or None when there is nothing to do. Raises ValueError while a plan is not handed back."""
        raise NotImplementedError

    def complete(self, plan: StepPlan, sampled: list[list[int]], now: float, actual_s: float) -> list[SequenceUpdate]:
        """Take in a step's result: `sampled[i]` are the tokens drawn for `plan.rows[i]`, as many as its `samples`.

        One update for each choice that got a token or ended, in row order; none for aborted sequences. `actual_s` is the time of
        the step, for the step-time model.
        """
        raise NotImplementedError

    def fail(self, plan: StepPlan, message: str) -> list[SequenceUpdate]:
        """The step raised: its sequences end with ERROR and their pages are freed; the others go on."""
        raise NotImplementedError

    @property
    def running(self) -> int:
        """Sequences that hold pages."""
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        raise NotImplementedError

    @property
    def waiting_by_class(self) -> list[int]:
        """Waiting sequences in each length class, shortest first."""
        raise NotImplementedError

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        raise NotImplementedError

    def stats(self) -> WorkerStats:
        """Gauges and counters; `steps` is left to the engine."""
        raise NotImplementedError
