"""Collects an answer's events and keeps their rules: indexes, offered tools, whitespace at the borders of structure.

Whitespace before the first text, behind the last, and next to a marker there belongs to the format and is dropped; that
between two texts stays, and an answer without markers keeps all of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from forebay.recipe.parsers.events import (
    Event,
    Problem,
    ProblemKind,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)


@dataclass(frozen=True, slots=True)
class Tool:
    """What a parser has to know of an offered tool."""

    name: str
    required: frozenset[str] = frozenset()
    """Arguments that a call must have."""


class _Gate:
    """Text of one kind. Whitespace next to a marker is held back, and shown only between two texts."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._shown = False
        self._marked = False
        """A marker came behind the text that was shown last."""

    def open(self) -> None:
        """A marker stands here."""
        self._marked = True
        if not self._shown:
            self._held.clear()

    def take(self, text: str) -> str:
        """What can be shown with this text."""
        if not text:
            return ""
        if self._shown and not self._held and not text[-1:].isspace():
            self._marked = False
            return text
        if self._marked and not self._shown:
            text = text.lstrip()
        shown = text.rstrip()
        if not shown:
            if text:
                self._held.append(text)
            return ""
        whole = "".join((*self._held, shown))
        self._held = [text[len(shown) :]] if len(shown) < len(text) else []
        self._shown, self._marked = True, False
        return whole

    def rest(self) -> str:
        """The end of the answer: the whitespace at the end of a text that no marker follows."""
        held, self._held = "".join(self._held), []
        return "" if self._marked else held


class Output:
    """The events of one answer."""

    def __init__(self, tools: Sequence[Tool], new_id: Callable[[int], str]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._new_id = new_id
        self._events: list[Event] = []
        self._text, self._reasoning = _Gate(), _Gate()
        self._names: list[str] = []
        self.open_call: int | None = None
        """Index of the call that has started and has not ended."""
        self.malformed = False
        """Some call's arguments are not valid."""
        self.truncated = False

    @property
    def calls(self) -> int:
        """How many calls have started."""
        return len(self._names)

    def drain(self) -> list[Event]:
        """The events since the last time."""
        events, self._events = self._events, []
        return events

    def border(self) -> None:
        """A marker stands here."""
        self._text.open()
        self._reasoning.open()

    def text(self, text: str) -> None:
        """More visible text."""
        shown = self._text.take(text)
        if shown:
            self._events.append(TextDelta(shown))

    def reasoning(self, text: str) -> None:
        """More reasoning."""
        shown = self._reasoning.take(text)
        if shown:
            self._events.append(ReasoningDelta(shown))

    def rest(self) -> None:
        """The end of the answer: whitespace at its end is text."""
        held = self._text.rest()
        if held:
            self._events.append(TextDelta(held))

    def offers(self, name: str) -> bool:
        """Whether a tool of that name was offered."""
        return name in self._tools

    def start_call(self, name: str, call_id: str | None = None) -> None:
        """A call whose name is known begins; `call_id` is the model's own where its format has one."""
        index = len(self._names)
        self._names.append(name)
        self.open_call = index
        self._events.append(ToolCallStart(index, call_id or self._new_id(index), name))
        if name not in self._tools:
            self.problem(ProblemKind.UNKNOWN_TOOL, f"The call names {name!r}, which is not among the offered tools.")

    def arguments(self, fragment: str) -> None:
        """More of the open call's arguments."""
        if fragment and self.open_call is not None:
            self._events.append(ToolCallArguments(self.open_call, fragment))

    def end_call(self, keys: Collection[str]) -> None:
        """The open call is complete and valid; `keys` are its arguments' names."""
        if self.open_call is None:
            return
        index, self.open_call = self.open_call, None
        tool = self._tools.get(self._names[index])
        for key in sorted((tool.required if tool else frozenset()) - set(keys)):
            self._report(ProblemKind.MISSING_FIELD, f"The call lacks the argument {key!r}.", index)
        for key in [key for key, count in Counter(keys).items() if count > 1]:
            self._report(ProblemKind.DUPLICATE_FIELD, f"The call has the argument {key!r} more than once.", index)
        self._events.append(ToolCallEnd(index))

    def break_call(self, kind: ProblemKind, message: str, text: str = "") -> None:
        """The open call, or one that has not even started, can't be completed."""
        self._report(kind, message, self.open_call, text)
        self.malformed |= self.open_call is not None and kind is not ProblemKind.TRUNCATED_CALL
        self.truncated |= kind is ProblemKind.TRUNCATED_CALL
        self.open_call = None

    def problem(self, kind: ProblemKind, message: str) -> None:
        """Something is wrong with the open call, or with the answer."""
        self._report(kind, message, self.open_call)

    def stray(self, spelling: str) -> None:
        """A control token was left out."""
        message = f"The control token {spelling!r} stands where the answer's format has none."
        self._report(ProblemKind.UNEXPECTED_CONTROL, message, None)

    def _report(self, kind: ProblemKind, message: str, index: int | None, text: str = "") -> None:
        self._events.append(Problem(kind, message, index, text))
