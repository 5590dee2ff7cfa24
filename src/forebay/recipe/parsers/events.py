"""What an answer consists of, as it streams: reasoning, text, tool calls, and what was wrong with them.

Plain data that no protocol has shaped. The concatenation of the deltas doesn't depend on how the stream was cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class ProblemKind(StrEnum):
    """What is wrong with an answer."""

    UNKNOWN_TOOL = "unknown_tool"
    """The call names a tool that was not offered; it is delivered all the same."""
    MISSING_FIELD = "missing_field"
    """The call lacks an argument that its tool requires, or a part that the format has; delivered all the same."""
    DUPLICATE_FIELD = "duplicate_field"
    """A part of a call or an argument of DSML is there twice."""
    INVALID_ARGUMENTS = "invalid_arguments"
    """The arguments of a call that has started are no JSON object; it gets no `ToolCallEnd`."""
    MALFORMED_CALL = "malformed_call"
    """Something marked as a call can't be read as one; its text was emitted as text."""
    TRUNCATED_CALL = "truncated_call"
    """The answer ended within a call; a call that has started gets no `ToolCallEnd`."""
    UNEXPECTED_CONTROL = "unexpected_control"
    """A control token stood where the format has none; it was left out."""


class AnswerEnd(StrEnum):
    """How an answer ended, for protocols to translate."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    """There are calls, and all of them are complete."""
    LENGTH = "length"
    """The answer was cut, or ended within a call."""
    MALFORMED = "malformed"
    """A call's arguments are not valid JSON: the answer must not be shown as a success."""


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More reasoning."""

    text: str


class TextDelta(msgspec.Struct, frozen=True):
    """More of what the user sees."""

    text: str


class ToolCallStart(msgspec.Struct, frozen=True):
    """A call begins; `index` counts the answer's calls from 0."""

    index: int
    id: str
    name: str


class ToolCallArguments(msgspec.Struct, frozen=True):
    """More of a call's arguments: the fragments of one call together are a JSON object, once it has ended."""

    index: int
    fragment: str


class ToolCallEnd(msgspec.Struct, frozen=True):
    """The call is complete and its arguments are valid JSON."""

    index: int


class Problem(msgspec.Struct, frozen=True):
    """Something is wrong; the answer goes on."""

    kind: ProblemKind
    message: str
    """For a person: what, and where."""
    index: int | None = None
    """The call in question, when it has started."""
    text: str = ""
    """What could not be read of a call that has started; it is in no other event."""


Event = ReasoningDelta | TextDelta | ToolCallStart | ToolCallArguments | ToolCallEnd | Problem


def merge(events: Iterable[Event]) -> list[Event]:
    """Join neighbouring deltas of one kind."""
    merged: list[Event] = []
    for event in events:
        joined = _join(merged[-1], event) if merged else None
        if joined is None:
            merged.append(event)
        else:
            merged[-1] = joined
    return merged


def _join(first: Event, second: Event) -> Event | None:
    if isinstance(first, ToolCallArguments) and isinstance(second, ToolCallArguments) and first.index == second.index:
        return ToolCallArguments(first.index, first.fragment + second.fragment)
    if isinstance(first, TextDelta) and isinstance(second, TextDelta):
        return TextDelta(first.text + second.text)
    if isinstance(first, ReasoningDelta) and isinstance(second, ReasoningDelta):
        return ReasoningDelta(first.text + second.text)
    return None
