"""Times one generation: first token, gaps between tokens, end; and hands the figures to the metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from forebay.core.grammar import GrammarKind
from forebay.core.messages import TokenOutput
from forebay.core.request import FinishReason, GenerateRequest
from forebay.recipe.parsers import Event, Problem, ProblemKind, ToolCallStart

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One complete generation; its choices together."""

    prompt_tokens: int
    tokens: int
    queued_s: float
    prefill_s: float
    """From the first scheduled chunk to the first token."""
    decode_s: float
    e2e_s: float


class AnswerMeasures(Protocol):
    """Where what answers say is counted."""

    def tool_call(self) -> None:
        """A call began."""

    def problem(self, kind: ProblemKind) -> None:
        """Something is wrong with an answer."""

    def grammar_request(self, kind: GrammarKind) -> None:
        """A request says what its answer has to look like."""


class Measures(Protocol):
    """Where the figures of finished and running generations go, in seconds and tokens."""

    def first_token(self, seconds: float) -> None:
        """From arrival to the first token of the first choice."""

    def token_gap(self, seconds: float) -> None:
        """Between two outputs of one choice."""

    def choice_finished(self, reason: FinishReason) -> None:
        """One choice ended."""

    @property
    def answers(self) -> AnswerMeasures:
        """Where what answers say is counted."""

    def generation_complete(self, timing: Timing) -> None:
        """All choices ended."""

    def generation_cut(self) -> None:
        """It ended early: the client is gone, or an error."""


class RequestObserver:
    """The clock of one generation."""

    def __init__(self, measures: Measures, clock: Callable[[], float] = time.monotonic) -> None:
        self._measures = measures
        self._clock = clock
        self._start = 0.0
        self._first: float | None = None
        self._latest: dict[int, float] = {}
        self._queued = 0.0
        self._problems: set[ProblemKind] = set()
        self._tokens = 0
        self._prompt_tokens = 0

    def started(self, request: GenerateRequest) -> None:
        """The request goes to the router now."""
        self._start = self._clock()
        self._prompt_tokens = len(request.prompt_ids)
        if request.sampling.grammar is not None:
            self._measures.answers.grammar_request(request.sampling.grammar.kind)

    def output(self, output: TokenOutput) -> None:
        """One output of one choice has come."""
        now = self._clock()
        self._tokens += len(output.token_ids)
        if output.queued_s is not None and self._first is None:
            self._queued = output.queued_s
        if self._first is None:
            self._first = now
            self._measures.first_token(now - self._start)
        if output.index in self._latest:
            self._measures.token_gap(now - self._latest[output.index])
        self._latest[output.index] = now

    def said(self, events: Iterable[Event]) -> None:
        """What one choice says; the first problem of each kind is logged, without the answer's text."""
        for event in events:
            if isinstance(event, ToolCallStart):
                self._measures.answers.tool_call()
            elif isinstance(event, Problem):
                self._measures.answers.problem(event.kind)
                if event.kind not in self._problems:
                    self._problems.add(event.kind)
                    log.warning("problem in an answer", extra={"kind": event.kind.value, "tool_call": event.index})

    def finished(self, reason: FinishReason) -> None:
        """One choice is complete."""
        self._measures.choice_finished(reason)

    def ended(self, complete: bool) -> None:
        """The generation is over, complete or not."""
        if not complete or self._first is None:
            self._measures.generation_cut()
            return
        now = self._clock()
        self._measures.generation_complete(
            Timing(
                prompt_tokens=self._prompt_tokens,
                tokens=self._tokens,
                queued_s=self._queued,
                prefill_s=max(self._first - self._start - self._queued, 0.0),
                decode_s=now - self._first,
                e2e_s=now - self._start,
            )
        )
