"""Checks one JSON value (RFC 8259) while its characters come in. It builds nothing and keeps no text.

A state machine: each character is looked at once, in whatever pieces it comes, and what it says doesn't depend on the
cuts. Nesting and size are bounded.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

MAX_DEPTH: Final = 256
MAX_CHARS: Final = 4 << 20

_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_DIGITS: Final = "0123456789"
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_LITERALS: Final = {"t": "rue", "f": "alse", "n": "ull"}


class _At(Enum):
    """What may come next."""

    VALUE = auto()
    FIRST_VALUE = auto()
    """A value, or the end of an array."""
    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    AFTER = auto()
    """Behind a value within a container."""
    STRING = auto()
    ESCAPE = auto()
    HEX = auto()
    LITERAL = auto()
    MINUS = auto()
    ZERO = auto()
    INTEGER = auto()
    POINT = auto()
    FRACTION = auto()
    EXPONENT = auto()
    EXPONENT_SIGN = auto()
    EXPONENT_DIGITS = auto()
    DONE = auto()
    FAILED = auto()


_NUMBERS: Final[dict[_At, dict[str, _At]]] = {
    _At.MINUS: {"0": _At.ZERO} | dict.fromkeys("123456789", _At.INTEGER),
    _At.ZERO: {".": _At.POINT, "e": _At.EXPONENT, "E": _At.EXPONENT},
    _At.INTEGER: {".": _At.POINT, "e": _At.EXPONENT, "E": _At.EXPONENT} | dict.fromkeys(_DIGITS, _At.INTEGER),
    _At.POINT: dict.fromkeys(_DIGITS, _At.FRACTION),
    _At.FRACTION: {"e": _At.EXPONENT, "E": _At.EXPONENT} | dict.fromkeys(_DIGITS, _At.FRACTION),
    _At.EXPONENT: dict.fromkeys("+-", _At.EXPONENT_SIGN) | dict.fromkeys(_DIGITS, _At.EXPONENT_DIGITS),
    _At.EXPONENT_SIGN: dict.fromkeys(_DIGITS, _At.EXPONENT_DIGITS),
    _At.EXPONENT_DIGITS: dict.fromkeys(_DIGITS, _At.EXPONENT_DIGITS),
}
_WHOLE_NUMBERS: Final = frozenset({_At.ZERO, _At.INTEGER, _At.FRACTION, _At.EXPONENT_DIGITS})
_IN_STRING: Final = frozenset({_At.STRING, _At.ESCAPE, _At.HEX})
_OVER: Final = frozenset({_At.DONE, _At.FAILED})


class JsonScanner:
    """One value. Whitespace before it is skipped; nothing behind it is taken."""

    def __init__(self) -> None:
        self._at = _At.VALUE
        self._stack: list[str] = []
        self._in_key = False
        self._rest = ""
        """What is still to come of a literal."""
        self._hex = 0
        self._taken = 0

    @property
    def done(self) -> bool:
        """The value is complete."""
        return self._at is _At.DONE

    @property
    def failed(self) -> bool:
        """What came is not the beginning of a value, or is beyond a bound."""
        return self._at is _At.FAILED

    @property
    def started(self) -> bool:
        """Whether something other than whitespace has come."""
        return self._at is not _At.VALUE or bool(self._stack)

    @property
    def in_string(self) -> bool:
        """Whether the next character belongs to a string."""
        return self._at in _IN_STRING

    def feed(self, text: str, at: int = 0) -> int:
        """Take characters from `at` on. Returns the place of the first one that was not taken: behind the value, or
        where it fails."""
        start, room = at, MAX_CHARS - self._taken
        if len(text) - at > room:
            text = text[: at + room]
        while at < len(text) and self._at not in _OVER:
            at = self._take(text, at)
        self._taken += at - start
        if self._taken == MAX_CHARS and not self.done:
            self._at = _At.FAILED
        return at

    def end(self) -> None:
        """Nothing more comes: a number on its own is complete now, anything else that is open fails."""
        if self._at in _WHOLE_NUMBERS and not self._stack:
            self._at = _At.DONE
        elif self._at is not _At.DONE:
            self._at = _At.FAILED

    def _take(self, text: str, at: int) -> int:
        if self._at is _At.STRING:
            return self._string(text, at)
        if self._at in _NUMBERS:
            return self._number(text, at)
        if self._at in _IN_STRING or self._at is _At.LITERAL:
            return self._inside(text[at], at)
        at = _match_end(_SPACE, text, at)
        return at if at == len(text) else self._structure(text[at], at)

    def _structure(self, char: str, at: int) -> int:
        """One character between tokens; it is taken unless it fails."""
        if char == '"' and self._at is not _At.COLON and self._at is not _At.AFTER:
            self._in_key = self._at in (_At.FIRST_KEY, _At.KEY)
            self._at = _At.STRING
        elif self._at is _At.COLON and char == ":":
            self._at = _At.VALUE
        elif self._at is _At.AFTER and char == ",":
            self._at = _At.KEY if self._stack[-1] == "}" else _At.VALUE
        elif self._may_close(char):
            self._stack.pop()
            self._value_ended()
        elif self._at in (_At.VALUE, _At.FIRST_VALUE):
            self._begin(char)
        else:
            self._at = _At.FAILED
        return at if self.failed else at + 1

    def _may_close(self, char: str) -> bool:
        return (
            bool(self._stack)
            and char == self._stack[-1]
            and self._at in (_At.AFTER, _At.FIRST_KEY if char == "}" else _At.FIRST_VALUE)
        )

    def _begin(self, char: str) -> None:
        if char in "{[":
            self._stack.append("}" if char == "{" else "]")
            self._at = _At.FIRST_KEY if char == "{" else _At.FIRST_VALUE
            if len(self._stack) > MAX_DEPTH:
                self._at = _At.FAILED
        elif char in _LITERALS:
            self._at, self._rest = _At.LITERAL, _LITERALS[char]
        else:
            self._at = _At.MINUS if char == "-" else _NUMBERS[_At.MINUS].get(char, _At.FAILED)

    def _value_ended(self) -> None:
        self._at = _At.AFTER if self._stack else _At.DONE

    def _string(self, text: str, at: int) -> int:
        at = _match_end(_PLAIN, text, at)
        if at == len(text):
            return at
        if text[at] == "\\":
            self._at = _At.ESCAPE
        elif text[at] != '"':
            self._at = _At.FAILED
            return at
        elif self._in_key:
            self._at = _At.COLON
        else:
            self._value_ended()
        return at + 1

    def _inside(self, char: str, at: int) -> int:
        """One character of an escape or a literal."""
        if self._at is _At.ESCAPE:
            self._hex = 4
            self._at = _At.HEX if char == "u" else _At.STRING if char in '"\\/bfnrt' else _At.FAILED
        elif self._at is _At.HEX:
            self._hex -= 1
            if char not in _HEX:
                self._at = _At.FAILED
            elif self._hex == 0:
                self._at = _At.STRING
        elif char != self._rest[0]:
            self._at = _At.FAILED
        else:
            self._rest = self._rest[1:]
            if not self._rest:
                self._value_ended()
        return at if self.failed else at + 1

    def _number(self, text: str, at: int) -> int:
        following = _NUMBERS[self._at].get(text[at])
        if following is not None:
            self._at = following
            return at + 1
        if self._at in _WHOLE_NUMBERS:
            self._value_ended()
        else:
            self._at = _At.FAILED
        return at


def _match_end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where a pattern that matches anywhere, if only the empty string, ends."""
    found = pattern.match(text, at)
    return at if found is None else found.end()
