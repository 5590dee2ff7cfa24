"""What every format of tool calls has in common: the protocol that `AnswerParser` drives."""

from __future__ import annotations

from typing import Final, Protocol

from forebay.recipe.parsers.events import ProblemKind
from forebay.recipe.parsers.markers import Marker
from forebay.recipe.parsers.output import Output


class CallFormat(Protocol):
    """A state machine over the items of one answer. It writes events to the `Output` that it was made with."""

    @property
    def idle(self) -> bool:
        """Whether it stands outside all calls, where reasoning may begin."""

    @property
    def in_string(self) -> bool:
        """Whether the next text is a part of a string in a call's arguments, where markers are data."""

    def text(self, text: str) -> None:
        """Plain text."""

    def marker(self, marker: Marker) -> bool:
        """A marker; False when it means nothing here and was not used."""

    def finish(self) -> None:
        """The answer is over."""


class NoCalls:
    """An answer in which no calls are looked for."""

    idle: Final = True
    in_string: Final = False

    def __init__(self, out: Output) -> None:
        self._out = out

    def text(self, text: str) -> None:
        """All text is visible."""
        self._out.text(text)

    def marker(self, marker: Marker) -> bool:
        """No marker is used."""
        return False

    def finish(self) -> None:
        """Nothing is open."""


class Remainder:
    """The rest of a call that can't be read, up to its end."""

    def __init__(self, out: Output, text: str, *, started: bool) -> None:
        self._out = out
        self._parts = [text]
        self._started = started

    def text(self, text: str) -> None:
        """More of it."""
        self._parts.append(text)

    def close(self, kind: ProblemKind, message: str) -> None:
        """Report it: as text where the call has not started, else with the problem."""
        text = "".join(self._parts)
        if not self._started:
            self._out.text(text)
            self._out.border()
            self._out.break_call(kind, message)
        elif kind is ProblemKind.TRUNCATED_CALL:
            self._out.break_call(kind, message, text)
        else:
            self._out.break_call(ProblemKind.INVALID_ARGUMENTS, message, text)
