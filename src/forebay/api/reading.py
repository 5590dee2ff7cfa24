"""Reads one choice: token ids to events, and where and how it ends. Bare text, or what a model's format says.

Stop strings are looked for in the visible text only, within one run of it: they don't act in reasoning or in a call's
arguments, and none spans a call. The parser sees all tokens up to a stop string and none behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from forebay.core.request import FinishReason
from forebay.recipe import TextStream, ToolCall
from forebay.recipe.parsers import (
    AnswerEnd,
    AnswerParser,
    Event,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from forebay.recipe.stop_strings import StopStrings


class EndReason(StrEnum):
    """How a choice ended, for protocols to translate."""

    STOP = "stop"
    LENGTH = "length"
    """Cut by a bound on tokens, or ended within a call."""
    TOOL_CALLS = "tool_calls"
    """There are calls, and all of them are complete."""
    ERROR = "error"
    """A call's arguments are not valid JSON: the answer must not be shown as a success, also where a stop string in the
    text behind that call ended it."""


_ENDS: Final = {
    AnswerEnd.STOP: EndReason.STOP,
    AnswerEnd.TOOL_CALLS: EndReason.TOOL_CALLS,
    AnswerEnd.LENGTH: EndReason.LENGTH,
    AnswerEnd.MALFORMED: EndReason.ERROR,
}


_SAID: Final = (TextDelta, ToolCallStart)
"""What shows that reasoning is over."""


@dataclass(frozen=True, slots=True)
class Finish:
    """How a choice ended."""

    reason: EndReason
    stop_string: str | None = None
    """The stop string that ended it; never a part of the text."""


@dataclass(slots=True)
class Reading:
    """What one push added."""

    events: list[Event] = field(default_factory=list)
    stopped: Finish | None = None
    """Set when a stop string ended the choice."""
    tokens: int = 0
    """How many of the pushed tokens belong to the choice; fewer than pushed when a stop string ended it."""


class ChoiceReader(Protocol):
    """The reader of one choice."""

    @property
    def reasoning_tokens(self) -> int:
        """Tokens so far that are reasoning or its markers."""

    @property
    def body(self) -> int | None:
        """How many tokens at the beginning are reasoning, its markers and the white space behind them; None where no
        border between tokens parts it from the rest."""

    def push(self, token_ids: Sequence[int]) -> Reading:
        """Take new tokens, without the one that ended the choice."""

    def finish(self, reason: FinishReason, last: int | None) -> tuple[list[Event], Finish]:
        """The choice is over; `last` is the model's own token that ended it, if one did."""


class PlainReader:
    """All tokens are text."""

    reasoning_tokens: Final = 0
    body: Final = 0

    def __init__(self, stream: TextStream) -> None:
        self._stream = stream

    def push(self, token_ids: Sequence[int]) -> Reading:
        """Take new tokens."""
        pushed = self._stream.push(token_ids)
        stopped = None if pushed.stopped is None else Finish(EndReason.STOP, pushed.stopped)
        return Reading(_texts(pushed.text), stopped, pushed.tokens)

    def finish(self, reason: FinishReason, last: int | None) -> tuple[list[Event], Finish]:
        """What was held back; it may complete a stop string."""
        rest = self._stream.finish()
        stop = rest.stopped is not None or reason is FinishReason.STOP
        return _texts(rest.text), Finish(EndReason.STOP if stop else EndReason.LENGTH, rest.stopped)


class ParsedReader:
    """An answer in its model's format: reasoning, text and calls."""

    def __init__(
        self,
        parser: AnswerParser,
        is_blank: Callable[[int], bool],
        stop: Sequence[str] = (),
        min_tokens: int = 0,
        *,
        channels: bool = False,
    ) -> None:
        """`is_blank`: whether a token is white space only. `channels`: the format parts reasoning from the rest in its
        own way, so that there is no body."""
        self._parser = parser
        self._channels = channels
        self._is_blank = is_blank
        self._stops = StopStrings(stop)
        self._min_tokens = min_tokens
        self._tokens = 0
        self._calls = 0
        self._unread = 0
        """Calls shown so far that have not ended. Text behind one shows that it can't be read."""
        self._said = False
        """There was text or a call."""
        self.reasoning_tokens = 0
        self.body: int | None = 0

    def push(self, token_ids: Sequence[int]) -> Reading:
        """Take new tokens, one by one, so that what is read doesn't depend on how many a step brought."""
        reading = Reading()
        for token in token_ids:
            reading.tokens += 1
            reading.events += self._take(token)
            if self._stops.found is not None:
                break
        if self._stops.found is not None:
            reading.stopped = self._stopped(self._stops.found)
        return reading

    def _take(self, token: int) -> list[Event]:
        self._tokens += 1
        reasons = self._parser.in_reasoning
        events = self._parser.push((token,))
        said = False
        for event in events:
            said |= isinstance(event, _SAID)
            reasons |= isinstance(event, ReasoningDelta)
        if reasons or self._parser.in_reasoning:
            self.reasoning_tokens += 1
            if self.body is not None and not self._channels:
                self.body = None if self._said or said else self._tokens
        elif self.body and self.body == self._tokens - 1 and self._is_blank(token):
            self.body = self._tokens
        self._said |= said
        return self._visible(events)

    def finish(self, reason: FinishReason, last: int | None) -> tuple[list[Event], Finish]:
        """What was held back; it may complete a stop string."""
        events = [] if last is None else self._visible(self._parser.push((last,)))
        events += self._visible(self._parser.finish(reason))
        if self._stops.found is not None:
            return events, self._stopped(self._stops.found)
        return events + _texts(self._stops.release()), Finish(_ENDS[self._parser.end])

    def _stopped(self, string: str) -> Finish:
        if self._unread:
            return Finish(EndReason.ERROR, string)
        return Finish(EndReason.TOOL_CALLS if self._calls else EndReason.STOP, string)

    def _visible(self, events: list[Event]) -> list[Event]:
        """The events up to a stop string; text that may become one is held back, though never across other events."""
        if not self._stops.any:
            return events
        shown: list[Event] = []
        for event in events:
            if self._stops.found is not None:
                break
            if isinstance(event, TextDelta):
                shown += _texts(self._stops.push(event.text, armed=self._tokens >= self._min_tokens))
                continue
            shown += [*_texts(self._stops.release()), event]
            self._calls += isinstance(event, ToolCallStart)
            self._unread += isinstance(event, ToolCallStart) - isinstance(event, ToolCallEnd)
        return shown


def calls_of(events: Iterable[Event]) -> list[ToolCall]:
    """The calls that started, with their arguments as far as they came."""
    starts: dict[int, ToolCallStart] = {}
    fragments: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, ToolCallStart):
            starts[event.index] = event
        elif isinstance(event, ToolCallArguments):
            fragments.setdefault(event.index, []).append(event.fragment)
    return [ToolCall(start.id, start.name, "".join(fragments.get(index, ()))) for index, start in starts.items()]


def _texts(text: str) -> list[Event]:
    return [TextDelta(text)] if text else []
