"""Calls as Llama 3 writes them: `{"name": …, "parameters": {…}}`, several separated by `;`, with or without
`<|python_tag|>` before them. Behind the tag there may also be a call of a built-in tool, `name.call(key="value")`,
which is known only when the answer ends.

Without the tag only an answer that begins with such an object is a call, and only once it has a name and parameters:
other JSON is text.
"""

from __future__ import annotations

import json
import re
from typing import ClassVar, Final

from forebay.recipe.parsers.call_format import Remainder
from forebay.recipe.parsers.call_object import CallObject
from forebay.recipe.parsers.events import ProblemKind
from forebay.recipe.parsers.markers import Marker
from forebay.recipe.parsers.output import Output

_TAG: Final = "<|python_tag|>"
_SPACE: Final = " \t\r\n"
_SEPARATORS: Final = _SPACE + ";,"
_MALFORMED: Final = "A tool call is not a JSON object with a name."
_BUILTIN: Final = re.compile(r"(?P<name>\w{1,64})\.call\((?P<arguments>.*)\)", re.DOTALL)
_ARGUMENT: Final = re.compile(r'(?P<key>\w+)="(?P<value>.*?)"(?:, (?=\w+=")|\Z)', re.DOTALL)


class Llama3Calls:
    """Ends a call with its object: the format has no end marker."""

    markers: ClassVar = (_TAG,)

    def __init__(self, out: Output) -> None:
        self._out = out
        self._call: CallObject | None = None
        self._remainder: Remainder | None = None
        self._code: list[str] | None = None
        """What stands behind the tag and is no object."""
        self._tagged = False
        self._may_begin = True
        """Only whitespace, or calls, have come so far."""
        self._between: list[str] = []
        """What may separate two calls."""

    @property
    def idle(self) -> bool:
        """Outside all calls."""
        return self._call is None and self._remainder is None and self._code is None

    @property
    def in_string(self) -> bool:
        """Within a string of a call's object."""
        return self._call is not None and self._call.in_string

    def text(self, text: str) -> None:
        """Visible text, or a part of a call."""
        at = 0
        while at < len(text):
            at = self._take(text, at)

    def _take(self, text: str, at: int) -> int:
        if self._call is not None:
            return self._feed(self._call, text, at)
        if self._remainder is not None:
            self._remainder.text(text[at:])
        elif self._code is not None:
            self._code.append(text[at:])
        elif self._may_begin:
            return self._look(text, at)
        else:
            self._out.text(text[at:])
        return len(text)

    def _look(self, text: str, at: int) -> int:
        """One character where a call may begin."""
        if text[at] in (_SEPARATORS if self._out.calls else _SPACE):
            self._between.append(text[at])
            return at + 1
        if text[at] == "{":
            self._call = CallObject(self._out, bare=not self._tagged)
            return at
        self._show(text[at:])
        return len(text)

    def _show(self, text: str) -> None:
        """What might have begun a call is none."""
        if self._tagged:
            self._code = [text]
            return
        self._may_begin = False
        self._out.text("".join((*self._between, text)))
        self._between = []

    def _feed(self, call: CallObject, text: str, at: int) -> int:
        end = call.feed(text, at)
        if call.started and self._between:
            self._between = []
        if call.done:
            self._call = None
            self._out.border()
        elif call.failed:
            self._fail(call, text[end:])
            return len(text)
        return end

    def _fail(self, call: CallObject, rest: str) -> None:
        self._call = None
        if call.started or self._tagged:
            self._remainder = call.remainder(rest)
        else:
            self._show(call.raw + rest)

    def marker(self, marker: Marker) -> bool:
        """The tag before calls."""
        if marker.spelling != _TAG:
            return False
        if self._call is not None and self._call.in_string:
            self._feed(self._call, _TAG, 0)
            return True
        self.finish()
        self._tagged = self._may_begin = True
        self._out.border()
        return True

    def finish(self) -> None:
        """A call that is open now is truncated; what only might have become one is text."""
        if self._code is not None:
            self._finish_code("".join(self._code))
        elif self._remainder is not None:
            self._remainder.close(ProblemKind.MALFORMED_CALL, _MALFORMED)
        elif self._call is not None and (self._call.started or self._tagged):
            self._call.remainder().close(ProblemKind.TRUNCATED_CALL, "The answer ended within a tool call.")
        elif self._call is not None:
            self._show(self._call.raw)
        elif not self._out.calls:
            self._out.text("".join(self._between))
        self._call = self._remainder = self._code = None
        self._between = []

    def _finish_code(self, code: str) -> None:
        call = builtin_call(code)
        if call is None:
            Remainder(self._out, code, started=False).close(ProblemKind.MALFORMED_CALL, _MALFORMED)
            return
        name, arguments = call
        self._out.start_call(name)
        self._out.arguments(json.dumps(arguments, ensure_ascii=False))
        self._out.end_call(list(arguments))


def builtin_call(code: str) -> tuple[str, dict[str, str]] | None:
    """The name and arguments of `name.call(key="value", …)`; None for other code. Quotes within a value are not
    escaped in this format, so a value ends where another argument or the call ends."""
    match = _BUILTIN.fullmatch(code.strip())
    if match is None:
        return None
    arguments: dict[str, str] = {}
    inside, at = match["arguments"], 0
    while at < len(inside):
        argument = _ARGUMENT.match(inside, at)
        if argument is None:
            return None
        arguments[argument["key"]] = argument["value"]
        at = argument.end()
    return match["name"], arguments
