"""Runs generations and turns the router's token outputs into deltas that no protocol has shaped yet.

Shared by all protocols: usage, finish reasons, timing. The engine knows stop tokens only; a stop string is found by the
reader of a choice, and once every choice has ended the rest is aborted by closing the router's generator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from forebay.api.asking import Prepared
from forebay.api.errors import FaultError, Kind
from forebay.api.keeping import AnswerRecord
from forebay.api.observe import RequestObserver
from forebay.api.ports import RecipePort, RouterPort
from forebay.api.reading import ChoiceReader, EndReason, Finish, ParsedReader, PlainReader
from forebay.core.errors import EngineUnavailableError
from forebay.core.messages import TokenLogprobs, TokenOutput
from forebay.core.request import FinishReason, GenerateRequest
from forebay.recipe import TextStream
from forebay.recipe.parsers import Event, ReasoningDelta, TextDelta, ToolFormat, merge


@dataclass(slots=True)
class Delta:
    """What one step added to one choice."""

    index: int
    events: list[Event] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    """The tokens behind the events, without a stop token."""
    logprobs: list[TokenLogprobs] | None = None
    """As many as `token_ids` when asked for."""
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    finish: Finish | None = None

    @property
    def text(self) -> str:
        """What the user sees of it."""
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def reasoning(self) -> str:
        """What it has of reasoning."""
        return "".join(event.text for event in self.events if isinstance(event, ReasoningDelta))

    @property
    def empty(self) -> bool:
        """Nothing that a client must see: held-back text, half a character."""
        return not self.events and self.finish is None and not self.logprobs and self.prompt_logprobs is None


Sink = Callable[["Generation", Delta], Awaitable[None]]


class _Choice:
    """One choice so far."""

    def __init__(self, reader: ChoiceReader, record: AnswerRecord | None) -> None:
        self.reader = reader
        self.record = record
        self.done = False

    def keep(self, delta: Delta) -> None:
        """Record a delta, so that the answer is known when it comes back."""
        if self.record is not None:
            self.record.add(delta.events, delta.token_ids)
            if delta.finish is not None:
                self.record.finish(self.reader.body, cut=delta.finish.stop_string is not None)


class Generation:
    """One prompt with its n choices. Counts usage while it runs."""

    def __init__(
        self,
        request: GenerateRequest,
        recipe: RecipePort,
        stop: Sequence[str],
        observer: RequestObserver,
        *,
        first: int = 0,
        prepared: Prepared | None = None,
    ) -> None:
        """Without `prepared` the prompt is bare text that the choices continue."""
        self.request = request
        self.first = first
        """Index of its first choice in the answer: prompts of one request count on."""
        self.prompt_tokens = len(request.prompt_ids)
        self.cached_tokens = 0
        self.cached_host = 0
        self.cached_disk = 0
        self.completion_tokens = 0
        self._observer = observer
        self._own_stops = frozenset(recipe.stop_token_ids)
        self._choices = [
            _Choice(_reader(request, recipe, stop, prepared), None if prepared is None else prepared.record())
            for _ in range(request.sampling.n)
        ]

    @property
    def reasoning_tokens(self) -> int:
        """Of `completion_tokens`: those that are reasoning."""
        return sum(choice.reader.reasoning_tokens for choice in self._choices)

    async def run(self, router: RouterPort, sink: Sink) -> None:
        """Feed every delta to `sink` until all choices are done.

        Raises what `router.generate` raises, and FaultError when the engine gave up on the request.
        """
        self._observer.started(self.request)
        try:
            async with aclosing(router.generate(self.request)) as outputs:
                async for output in outputs:
                    await self._take(output, sink)
                    if all(choice.done for choice in self._choices):
                        break
        finally:
            self._observer.ended(all(choice.done for choice in self._choices))
        if not all(choice.done for choice in self._choices):
            raise EngineUnavailableError("the engine's outputs ended before the answer did")

    async def _take(self, output: TokenOutput, sink: Sink) -> None:
        choice = self._choices[output.index]
        if choice.done:
            return
        if output.finish_reason in (FinishReason.ERROR, FinishReason.ABORT):
            raise FaultError(Kind.INTERNAL, output.error or "The engine gave up on this request.")
        self._observer.output(output)
        if output.cached_tokens > self.cached_tokens:
            self.cached_tokens = output.cached_tokens
            self.cached_host, self.cached_disk = output.cached_host, output.cached_disk
        delta = self._delta(choice, output)
        choice.done = delta.finish is not None
        self._observer.said(delta.events)
        choice.keep(delta)
        if delta.finish is not None:
            self._observer.finished(_FINISHED.get(delta.finish.reason, FinishReason.STOP))
        await sink(self, delta)

    def _delta(self, choice: _Choice, output: TokenOutput) -> Delta:
        ids, reason, last = output.token_ids, output.finish_reason, None
        if reason is FinishReason.STOP and ids and ids[-1] in self.request.sampling.stop_token_ids:
            last, ids = ids[-1], ids[:-1]
        reading = choice.reader.push(ids)
        events, finish = reading.events, reading.stopped
        self.completion_tokens += len(output.token_ids) if finish is None else reading.tokens
        ids = ids[: reading.tokens]
        if reason is not None and finish is None:
            rest, finish = choice.reader.finish(reason, last if last in self._own_stops else None)
            events = merge([*events, *rest])
        logprobs = None if output.logprobs is None else output.logprobs[: len(ids)]
        return Delta(output.index, events, ids, logprobs, output.prompt_logprobs, finish)


_FINISHED = {EndReason.LENGTH: FinishReason.LENGTH, EndReason.ERROR: FinishReason.ERROR}
"""How the metrics count an end that is not a stop."""


def _reader(
    request: GenerateRequest, recipe: RecipePort, stop: Sequence[str], prepared: Prepared | None
) -> ChoiceReader:
    minimum = request.sampling.min_tokens
    # Text that goes on behind text keeps its first space; an answer that begins a message loses it.
    follows_text = prepared is None or prepared.continued
    detokenizer = recipe.detokenizer(request.prompt_ids if follows_text else ())
    if prepared is None:
        return PlainReader(TextStream(detokenizer, stop, min_tokens=minimum))
    parser = recipe.parsers.parser(
        detokenizer, prompt_ids=request.prompt_ids, tools=prepared.tools, stop_ids=request.sampling.stop_token_ids
    )
    channels = recipe.parsers.tool_format is ToolFormat.HARMONY
    return ParsedReader(parser, lambda token: not recipe.token_bytes(token).strip(), stop, minimum, channels=channels)


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first_error(error) if isinstance(error, BaseExceptionGroup) else error


async def run_all(generations: Sequence[Generation], router: RouterPort, sink: Sink, timeout_s: float) -> None:
    """Run the generations of one request side by side; the first failure ends the others and is raised.

    Raises FaultError (DEADLINE) when they are not complete after `timeout_s`.
    """
    try:
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as group:
            for generation in generations:
                group.create_task(generation.run(router, sink))
    except TimeoutError:
        text = f"The answer was not complete after {timeout_s:g} seconds. Ask for fewer tokens, or again later."
        raise FaultError(Kind.DEADLINE, text) from None
    except BaseExceptionGroup as failures:
        raise _first_error(failures) from failures


async def collect(generations: Sequence[Generation], router: RouterPort, timeout_s: float) -> dict[int, Delta]:
    """Run the generations and join each choice's deltas; keys are the choices' indexes in the whole answer."""
    joined: dict[int, _Joined] = {}

    async def add(generation: Generation, delta: Delta) -> None:
        joined.setdefault(generation.first + delta.index, _Joined()).add(delta)

    await run_all(generations, router, add, timeout_s)
    return {index: joined[index].delta(index) for index in sorted(joined)}


class _Joined:
    """Deltas of one choice in order; their events are merged once."""

    def __init__(self) -> None:
        self._deltas: list[Delta] = []

    def add(self, delta: Delta) -> None:
        self._deltas.append(delta)

    def delta(self, index: int) -> Delta:
        deltas = self._deltas
        with_logprobs = any(d.logprobs is not None for d in deltas)
        return Delta(
            index=index,
            events=merge(event for d in deltas for event in d.events),
            token_ids=[i for d in deltas for i in d.token_ids],
            logprobs=[p for d in deltas for p in d.logprobs or []] if with_logprobs else None,
            prompt_logprobs=next((d.prompt_logprobs for d in deltas if d.prompt_logprobs is not None), None),
            finish=deltas[-1].finish,
        )
