"""Calls as Mistral writes them: `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`, and the newer
`[TOOL_CALLS]name{…}` or `[TOOL_CALLS]name[CALL_ID]…[ARGS]{…}`, any number of them.

The id behind `[CALL_ID]` becomes the call's. One within an object comes when the call has long been passed on, so it is
not used.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar, Final

from forebay.recipe.call_ids import is_nine_characters
from forebay.recipe.parsers.arguments import Arguments
from forebay.recipe.parsers.call_format import Remainder
from forebay.recipe.parsers.call_object import CallObject
from forebay.recipe.parsers.events import ProblemKind
from forebay.recipe.parsers.markers import Marker
from forebay.recipe.parsers.output import Output

_CALLS: Final = "[TOOL_CALLS]"
_ARGUMENTS: Final = "[ARGS]"
_ID: Final = "[CALL_ID]"
_SPACE: Final = " \t\r\n"
_MAX_NAME: Final = 256


class _In(Enum):
    TEXT = auto()
    BEGIN = auto()
    """Behind the marker."""
    NAME = auto()
    ID = auto()
    ARGUMENTS = auto()
    ARRAY = auto()
    """Between the calls of an array."""
    CALL = auto()
    REMAINDER = auto()


class MistralCalls:
    """Both forms; which one it is shows behind the marker."""

    markers: ClassVar = (_CALLS, _ARGUMENTS, _ID)

    def __init__(self, out: Output) -> None:
        self._out = out
        self._in = _In.TEXT
        self._name: list[str] = []
        self._id: list[str] = []
        self._call = CallObject(out)
        self._arguments = Arguments(out)
        self._remainder = Remainder(out, "", started=False)

    @property
    def idle(self) -> bool:
        """Outside all calls."""
        return self._in is _In.TEXT

    @property
    def in_string(self) -> bool:
        """Within a string of a call's object or arguments."""
        if self._in is _In.CALL:
            return self._call.in_string
        return self._in is _In.ARGUMENTS and self._arguments.in_string

    def text(self, text: str) -> None:
        """Visible text, or a part of calls."""
        at = 0
        while at < len(text):
            at = self._take(text, at)

    def _take(self, text: str, at: int) -> int:
        if self._in is _In.TEXT:
            self._out.text(text[at:])
        elif self._in is _In.REMAINDER:
            self._remainder.text(text[at:])
        elif self._in is _In.NAME:
            return self._take_name(text, at)
        elif self._in is _In.ARGUMENTS:
            return self._take_arguments(text, at)
        elif self._in is _In.CALL:
            return self._take_call(text, at)
        elif self._in is _In.ID:
            self._id.append(text[at : at + _MAX_NAME])
        else:
            return self._between(text, at)
        return len(text)

    def _between(self, text: str, at: int) -> int:
        """Behind the marker, or between the calls of an array."""
        char = text[at]
        if char in _SPACE:
            return at + 1
        if self._in is _In.BEGIN:
            self._in = _In.ARRAY if char == "[" else _In.NAME
            self._name, self._id = [], []
            return at + (char == "[")
        if char == "{":
            self._in, self._call = _In.CALL, CallObject(self._out)
            return at
        if char == "]":
            self._in = _In.TEXT
            self._out.border()
        elif char != ",":
            self._give_up(Remainder(self._out, text[at:], started=False))
            return len(text)
        return at + 1

    def _take_name(self, text: str, at: int) -> int:
        brace = text.find("{", at)
        end = len(text) if brace < 0 else brace
        self._name.append(text[at:end])
        if sum(map(len, self._name)) > _MAX_NAME:
            self._give_up(Remainder(self._out, "".join(self._name) + text[end:], started=False))
            return len(text)
        if brace >= 0:
            self._start()
        return end

    def _start(self) -> None:
        """The name is complete."""
        name, call_id = "".join(self._name).strip(), "".join(self._id).strip()
        self._name, self._id = [], []
        if not name:
            self._give_up(Remainder(self._out, "", started=False))
            return
        self._in, self._arguments = _In.ARGUMENTS, Arguments(self._out)
        self._out.start_call(name, call_id if is_nine_characters(call_id) else None)

    def _take_arguments(self, text: str, at: int) -> int:
        end = self._arguments.feed(text, at)
        if self._arguments.failed:
            self._give_up(Remainder(self._out, text[end:], started=True))
            return len(text)
        if self._arguments.done:
            self._out.end_call(self._arguments.keys)
            self._out.border()
            self._in = _In.TEXT
        return end

    def _take_call(self, text: str, at: int) -> int:
        end = self._call.feed(text, at)
        if self._call.failed:
            self._give_up(self._call.remainder(text[end:]))
            return len(text)
        if self._call.done:
            self._in = _In.ARRAY
        return end

    def _give_up(self, remainder: Remainder) -> None:
        self._in, self._remainder = _In.REMAINDER, remainder

    def marker(self, marker: Marker) -> bool:
        """The beginning of calls, or what separates a name from its arguments."""
        if marker.spelling not in self.markers:
            return False
        if self.in_string:
            self.text(marker.spelling)
        elif marker.spelling == _CALLS:
            return self._begin(marker)
        elif self._in is _In.NAME:
            if marker.spelling == _ID:
                self._in = _In.ID
            else:
                self._start()
        elif self._in is _In.ID and marker.spelling == _ARGUMENTS:
            self._start()
        else:
            return False
        return True

    def _begin(self, marker: Marker) -> bool:
        if marker.token is None and not marker.starts_line:
            return False
        self._close(ProblemKind.MALFORMED_CALL, "A tool call has no end, or is not what the format asks for.")
        self._out.border()
        self._in = _In.BEGIN
        return True

    def finish(self) -> None:
        """A call that is open now is truncated."""
        if self._in is _In.REMAINDER:
            self._close(ProblemKind.MALFORMED_CALL, "A tool call is not what the format asks for.")
        else:
            self._close(ProblemKind.TRUNCATED_CALL, "The answer ended within a tool call.")

    def _close(self, kind: ProblemKind, message: str) -> None:
        """Give up what is open; an array that lacks only its bracket is complete enough to be no problem."""
        remainder = self._remainder
        if self._in is _In.CALL:
            remainder = self._call.remainder()
        elif self._in is _In.ARGUMENTS:
            remainder = Remainder(self._out, "", started=True)
        elif self._in in (_In.NAME, _In.ID, _In.BEGIN):
            remainder = Remainder(self._out, "".join(self._name), started=False)
        if self._in not in (_In.TEXT, _In.ARRAY):
            remainder.close(kind, message)
        self._in = _In.TEXT
