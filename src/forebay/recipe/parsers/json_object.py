"""Reads a JSON object's members while its characters come in: keys as text, values as raw fragments.

Values keep their spelling (`1.10`, big integers, key order, duplicate keys). Built on `JsonScanner`, with its bounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from forebay.recipe.parsers.json_scanner import MAX_CHARS, JsonScanner

_SPACE: Final = " \t\r\n"

OnValue = Callable[[str, str, bool], None]
"""Called with a key, the next piece of its value, and whether the value is complete with it."""


class _At(Enum):
    OPEN = auto()
    FIRST_KEY = auto()
    KEY = auto()
    IN_KEY = auto()
    COLON = auto()
    VALUE = auto()
    AFTER = auto()
    DONE = auto()
    FAILED = auto()


class ObjectReader:
    """One object. Whitespace before it is skipped; nothing behind it is taken."""

    def __init__(self, on_value: OnValue | None = None) -> None:
        self._on_value = on_value
        self._at = _At.OPEN
        self._scanner = JsonScanner()
        self._spelling: list[str] = []
        self._taken = 0
        self.key = ""
        """The member that is being read, or was read last."""
        self.keys: list[str] = []
        """All members so far, with repetitions."""

    @property
    def done(self) -> bool:
        """The object is complete."""
        return self._at is _At.DONE

    @property
    def failed(self) -> bool:
        """What came is not the beginning of an object, or is beyond a bound."""
        return self._at is _At.FAILED

    @property
    def in_string(self) -> bool:
        """Whether the next character belongs to a string."""
        return self._at in (_At.IN_KEY, _At.VALUE) and self._scanner.in_string

    def fail(self) -> None:
        """Take nothing more: the reader of the values has found something wrong."""
        self._at = _At.FAILED

    def feed(self, text: str, at: int = 0) -> int:
        """Take characters from `at` on. Returns the place of the first one that was not taken."""
        start, room = at, MAX_CHARS - self._taken
        if len(text) - at > room:
            text = text[: at + room]
        while at < len(text) and self._at not in (_At.DONE, _At.FAILED):
            if self._at is _At.IN_KEY:
                at = self._key(text, at)
            elif self._at is _At.VALUE:
                at = self._value(text, at)
            elif text[at] in _SPACE:
                at += 1
            else:
                at = self._structure(text[at], at)
        self._taken += at - start
        if self._taken == MAX_CHARS and not self.done:
            self._at = _At.FAILED
        return at

    def _structure(self, char: str, at: int) -> int:
        if self._at is _At.OPEN and char == "{":
            self._at = _At.FIRST_KEY
        elif char == "}" and self._at in (_At.FIRST_KEY, _At.AFTER):
            self._at = _At.DONE
        elif char == "," and self._at is _At.AFTER:
            self._at = _At.KEY
        elif char == '"' and self._at in (_At.FIRST_KEY, _At.KEY):
            self._begin(_At.IN_KEY)
            return at
        elif char == ":" and self._at is _At.COLON:
            self._begin(_At.VALUE)
        else:
            self._at = _At.FAILED
            return at
        return at + 1

    def _begin(self, state: _At) -> None:
        self._at, self._scanner = state, JsonScanner()

    def _key(self, text: str, at: int) -> int:
        end = self._scanner.feed(text, at)
        self._spelling.append(text[at:end])
        if self._scanner.failed:
            self._at = _At.FAILED
        elif self._scanner.done:
            self.key = json.loads("".join(self._spelling))
            self.keys.append(self.key)
            self._spelling = []
            self._at = _At.COLON
        return end

    def _value(self, text: str, at: int) -> int:
        while at < len(text) and text[at] in _SPACE and not self._scanner.started:
            at += 1
        end = self._scanner.feed(text, at)
        if self._scanner.failed:
            self._at = _At.FAILED
        elif self._scanner.done:
            self._at = _At.AFTER
        if self._on_value is not None and (end > at or self._scanner.done):
            self._on_value(self.key, text[at:end], self._scanner.done)
        return end
