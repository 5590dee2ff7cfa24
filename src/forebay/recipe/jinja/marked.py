"""Strings that know who wrote each character, through all that a template does with them.

The rule that makes this safe is which way it fails: a plain `str` counts as unknown, and only what the template spells
itself is marked as the template's. An operation that is not followed here (a method that is not overridden, a library
that joins strings by itself) returns a plain `str`, and from that no control token is ever made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from operator import index
from typing import Any, Final, SupportsIndex

from forebay.core.prompt import Origin

UNKNOWN: Final = 0
TEMPLATE: Final = 1
FINAL: Final = 6
"""The last message's text, when it is to be continued."""
TOOLS: Final = 7
"""The definitions of tools."""

MARKS: Final[dict[Origin, int]] = {Origin.SYSTEM: 2, Origin.USER: 3, Origin.ASSISTANT: 4, Origin.TOOL: 5}
"""The mark of each origin of text."""
ORIGIN_OF: Final[dict[int, Origin]] = {mark: origin for origin, mark in MARKS.items()} | {
    UNKNOWN: Origin.USER,
    TEMPLATE: Origin.TEMPLATE,
    FINAL: Origin.ASSISTANT,
    TOOLS: Origin.SYSTEM,
}
"""The origin of each mark. Unknown counts as the user's, which is the least trusted."""

MAX_LENGTH: Final = 1 << 24
"""Characters of one string; beyond it the template is running away."""
_RUN: Final = re.compile(rb"(.)\1*", re.DOTALL)


class Marked(str):
    """A string with one mark a character. It compares and hashes as the plain string."""

    __slots__ = ("marks",)
    marks: bytes

    def __new__(cls, text: str, marks: bytes | None = None) -> Marked:
        """`marks` has one byte a character; None keeps the text's own, or unknown for a plain string."""
        self = super().__new__(cls, text)
        self.marks = marks_of(text) if marks is None else marks
        if len(self.marks) != len(self):
            raise ValueError(f"{len(self.marks)} marks for {len(self)} characters")
        return self

    @classmethod
    def of(cls, text: str, mark: int) -> Marked:
        """All characters of one mark."""
        return cls(str.__str__(text), bytes((mark,)) * len(text))

    def __str__(self) -> Marked:
        return self

    def __add__(self, other: str) -> Marked:
        return concat((self, other))

    def __radd__(self, other: str) -> Marked:
        return concat((other, self))

    def __mul__(self, count: SupportsIndex) -> Marked:
        times = max(index(count), 0)
        _bound(len(self) * times)
        return Marked(super().__mul__(times), self.marks * times)

    __rmul__ = __mul__

    def __getitem__(self, key: SupportsIndex | slice) -> Marked:
        if isinstance(key, slice):
            return Marked(super().__getitem__(key), self.marks[key])
        at = index(key)  # TypeError for a key that is no number, which Jinja expects
        return Marked(super().__getitem__(at), bytes((self.marks[at],)))

    def __iter__(self) -> Iterator[Marked]:
        return (self[at] for at in range(len(self)))

    def strip(self, chars: str | None = None, /) -> Marked:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> Marked:
        return self[len(self) - len(super().lstrip(chars)) :]

    def rstrip(self, chars: str | None = None, /) -> Marked:
        return self[: len(super().rstrip(chars))]

    def removeprefix(self, prefix: str, /) -> Marked:
        return self[len(prefix) :] if self.startswith(prefix) else self

    def removesuffix(self, suffix: str, /) -> Marked:
        return self[: len(self) - len(suffix)] if suffix and self.endswith(suffix) else self

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> Marked:
        if not old:
            return Marked(super().replace(old, new, count))
        return concat_with(new, self.split(old, count))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Marked]:  # type: ignore[override]
        return self._pieces(super().split(sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Marked]:  # type: ignore[override]
        return self._pieces(super().rsplit(sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[Marked]:  # type: ignore[override]
        lines: list[Marked] = []
        at = 0
        for whole, shown in zip(super().splitlines(True), super().splitlines(keepends), strict=True):
            lines.append(self[at : at + len(shown)])
            at += len(whole)
        return lines

    def partition(self, sep: str, /) -> tuple[Marked, Marked, Marked]:
        head, middle, tail = super().partition(sep)
        return self[: len(head)], self[len(head) : len(head) + len(middle)], self[len(self) - len(tail) :]

    def rpartition(self, sep: str, /) -> tuple[Marked, Marked, Marked]:
        head, middle, tail = super().rpartition(sep)
        return self[: len(head)], self[len(head) : len(head) + len(middle)], self[len(self) - len(tail) :]

    def join(self, parts: Iterable[str], /) -> Marked:
        return concat_with(self, parts)

    def upper(self) -> Marked:
        return self._by_run(str.upper)

    def lower(self) -> Marked:
        return self._by_run(str.lower)

    def title(self) -> Marked:
        return self._same_length(super().title())

    def capitalize(self) -> Marked:
        return self._same_length(super().capitalize())

    def _same_length(self, text: str) -> Marked:
        return Marked(text, self.marks if len(text) == len(self) else bytes(len(text)))

    def _by_run(self, change: Any) -> Marked:
        whole = change(str.__str__(self))
        if len(whole) == len(self):
            return Marked(whole, self.marks)
        return concat([Marked.of(change(text), mark) for text, mark in runs(self)])

    def _pieces(self, pieces: list[str], separator: str | None) -> list[Marked]:
        """The marked slices for `pieces` of a split; without a separator they lie between white space."""
        found: list[Marked] = []
        at = 0
        for piece in pieces:
            start = at if separator is not None else str.index(self, piece, at)
            found.append(self[start : start + len(piece)])
            at = start + len(piece) + len(separator or "")
        return found


def marks_of(text: str) -> bytes:
    """One mark a character; a plain string is unknown throughout."""
    return text.marks if isinstance(text, Marked) else bytes(len(text))


def concat(parts: Iterable[str]) -> Marked:
    """Join strings, each character with its mark."""
    listed = list(parts)
    _bound(sum(map(len, listed)))
    return Marked("".join(listed), b"".join(map(marks_of, listed)))


def concat_with(separator: str, parts: Iterable[str]) -> Marked:
    """Join strings with a separator between them."""
    listed: list[str] = []
    for part in parts:
        if listed:
            listed.append(separator)
        listed.append(part)
    return concat(listed)


def runs(text: str) -> Iterator[tuple[str, int]]:
    """The longest stretches of one mark, in order, as plain strings."""
    plain = str.__str__(text)
    for run in _RUN.finditer(marks_of(text)):
        yield plain[run.start() : run.end()], run[0][0]


def _bound(length: int) -> None:
    if length > MAX_LENGTH:
        raise OverflowError(f"a string of {length} characters is more than the {MAX_LENGTH} that a template may make")
