"""A call written as one JSON object, `{"name": …, "arguments": {…}}`, in any order of members."""

from __future__ import annotations

import json
from typing import Final

from forebay.recipe.parsers.arguments import Arguments
from forebay.recipe.parsers.call_format import Remainder
from forebay.recipe.parsers.events import ProblemKind
from forebay.recipe.parsers.json_object import ObjectReader
from forebay.recipe.parsers.output import Output

_ARGUMENTS: Final = ("arguments", "parameters")
_OTHERS: Final = ("type", "id")


class CallObject:
    """One call. Its arguments are passed on while they come, once the name is known.

    Arguments that are a string with JSON in it, as some models write, are passed on decoded when the call ends.
    """

    def __init__(self, out: Output, *, bare: bool = False) -> None:
        """`bare`: no marker says that this is a call, so it starts only when it has a name and arguments, and anything
        else is text."""
        self._out = out
        self._bare = bare
        self._reader = ObjectReader(self._value)
        self._raw: list[str] = []
        """All text, until it starts."""
        self._name: str | None = None
        self._spelling: list[str] = []
        self._arguments: Arguments | None = None
        self._waiting: list[str] = []
        """Arguments that came before the name."""
        self._odd: list[str] = []
        """Arguments that are no object."""
        self._complete = False
        """The arguments have been read."""
        self._broken = False
        self.started = False

    @property
    def done(self) -> bool:
        """The call is complete, and was ended."""
        return self._reader.done and not self._broken

    @property
    def failed(self) -> bool:
        """It is no call."""
        return self._reader.failed or self._broken

    @property
    def in_string(self) -> bool:
        """Whether the next character belongs to a string."""
        return self._reader.in_string

    @property
    def raw(self) -> str:
        """All of its text, as long as it has not started."""
        return "".join(self._raw)

    def feed(self, text: str, at: int = 0) -> int:
        """Take characters from `at` on. Returns the place of the first one that was not taken."""
        end = self._reader.feed(text, at)
        if self._reader.done:
            self._end()
        if self.started:
            self._raw = []
        else:
            self._raw.append(text[at:end])
        return end

    def remainder(self, rest: str = "") -> Remainder:
        """What has not been passed on, with the text behind it."""
        unread = self._odd if self.started else self._raw
        return Remainder(self._out, "".join((*unread, rest)), started=self.started)

    def _value(self, key: str, piece: str, complete: bool) -> None:
        if key == "name" and self._name is None:
            self._spelling.append(piece)
            if complete:
                self._take_name(json.loads("".join(self._spelling)))
        elif key in _ARGUMENTS and not self._complete:
            self._complete = complete
            self._argument(piece)
        elif self._bare and not self.started and key not in _OTHERS:
            self._reader.fail()
        elif complete and key in ("name", *_ARGUMENTS):
            self._out.problem(ProblemKind.DUPLICATE_FIELD, f"The call has the member {key!r} more than once.")

    def _take_name(self, name: object) -> None:
        if not isinstance(name, str) or not name:
            self._reader.fail()
            return
        self._name = name
        self._start()

    def _argument(self, piece: str) -> None:
        if self._arguments is None and not self._odd and piece.startswith("{"):
            self._arguments = Arguments(self._out)
        if self._arguments is None:
            self._odd.append(piece)
        elif self.started:
            self._arguments.feed(piece)
        else:
            self._waiting.append(piece)
        self._start()

    def _start(self) -> None:
        if self.started or self._name is None or (self._bare and self._arguments is None and not self._odd):
            return
        self.started = True
        self._out.start_call(self._name)
        if self._arguments is not None:
            self._arguments.feed("".join(self._waiting))
            self._waiting = []

    def _end(self) -> None:
        if not self.started:
            self._broken = True
        elif self._arguments is not None:
            self._out.end_call(self._arguments.keys)
        else:
            self._end_odd("".join(self._odd) or "null")

    def _end_odd(self, spelling: str) -> None:
        """End a call without arguments, or whose arguments are no object but may be a string that holds one."""
        value = json.loads(spelling)
        if value is None:
            self._out.problem(ProblemKind.MISSING_FIELD, "The call has no arguments; none are assumed.")
            self._out.arguments("{}")
            self._out.end_call(())
            return
        inner = Arguments(self._out)
        if isinstance(value, str) and inner.feed(value) == len(value.rstrip()) and inner.done:
            self._out.end_call(inner.keys)
        else:
            self._broken = True
