"""Calls as Hermes and Qwen write them: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, any number, with text
around them."""

from __future__ import annotations

from typing import ClassVar, Final

from forebay.recipe.parsers.call_format import Remainder
from forebay.recipe.parsers.call_object import CallObject
from forebay.recipe.parsers.events import ProblemKind
from forebay.recipe.parsers.markers import Marker
from forebay.recipe.parsers.output import Output

_BEGIN: Final = "<tool_call>"
_END: Final = "</tool_call>"


class HermesCalls:
    """The end marker inside a JSON string is a part of the string."""

    markers: ClassVar = (_BEGIN, _END)

    def __init__(self, out: Output) -> None:
        self._out = out
        self._call: CallObject | None = None
        self._remainder: Remainder | None = None
        self._ended = False
        """The call is complete, and its end marker has not come yet."""

    @property
    def idle(self) -> bool:
        """Outside all calls, or behind a complete one."""
        return self._call is None and self._remainder is None

    @property
    def in_string(self) -> bool:
        """Within a string of the call's object."""
        return self._call is not None and self._call.in_string

    def text(self, text: str) -> None:
        """Visible text, or a part of a call."""
        if self._remainder is not None:
            self._remainder.text(text)
        elif self._call is None:
            if self._ended:
                text = text.lstrip()
                self._ended = not text
            self._out.text(text)
        else:
            self._feed(self._call, text)

    def _feed(self, call: CallObject, text: str) -> None:
        end = call.feed(text)
        if call.failed:
            self._call, self._remainder = None, call.remainder(text[end:])
        elif call.done:
            self._call, self._ended = None, True
            self.text(text[end:])

    def marker(self, marker: Marker) -> bool:
        """The beginning or the end of a call."""
        if marker.spelling not in self.markers:
            return False
        if self._call is not None and self._call.in_string:
            self._feed(self._call, marker.spelling)
            return True
        if marker.spelling == _BEGIN:
            return self._begin(marker)
        if self.idle and not self._ended:
            return False
        self._close()
        return True

    def _begin(self, marker: Marker) -> bool:
        if marker.token is None and not marker.starts_line:
            return False
        self._close()
        self._call = CallObject(self._out)
        return True

    def _close(self) -> None:
        self._give_up(ProblemKind.MALFORMED_CALL, "A tool call is not a JSON object with a name and arguments.")
        self._ended = False
        self._out.border()

    def finish(self) -> None:
        """A call that is open now is truncated."""
        if self._call is not None:
            self._give_up(ProblemKind.TRUNCATED_CALL, "The answer ended within a tool call.")
        self._give_up(ProblemKind.MALFORMED_CALL, "A tool call is not a JSON object with a name and arguments.")

    def _give_up(self, kind: ProblemKind, message: str) -> None:
        left = self._remainder if self._call is None else self._call.remainder()
        if left is not None:
            left.close(kind, message)
        self._call = self._remainder = None
