"""Strict mode: finds what looks like structure in what a client wrote.

By default such text is plain text like any other, and nothing is looked for. Where an operator or a client wants it
refused instead, this says where it is: each control token's spelling, each plain-text delimiter of the template, and
what differs from one only by what a normaliser folds (width and other compatibility forms, zero-width characters).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from forebay.core.errors import ConversationError
from forebay.recipe.conversation import Conversation
from forebay.recipe.strings import Path, client_strings
from forebay.recipe.templates.json_text import respaced

_KEY = 3
"""Spellings are looked up by this many of their first characters."""


@dataclass(frozen=True, slots=True)
class FoundMarker:
    """The first marker in a text."""

    offset: int
    """In characters."""
    marker: str
    """The spelling that it is, or looks like."""


class MarkerFinder:
    """Looks for a fixed set of spellings. The time is linear in the text, whatever the number of spellings."""

    def __init__(self, spellings: Iterable[str]) -> None:
        self._by_folded = {folded: each for each in spellings if (folded := "".join(map(_fold, each))).strip()}
        self._lengths: dict[str, list[int]] = {}
        for folded in self._by_folded:
            lengths = self._lengths.setdefault(folded[:_KEY], [])
            if len(folded) not in lengths:
                lengths.append(len(folded))
        for lengths in self._lengths.values():
            lengths.sort(reverse=True)
        firsts = "".join(map(re.escape, sorted({folded[0] for folded in self._by_folded})))
        self._first = re.compile(f"[{firsts}]") if firsts else None

    def find(self, text: str) -> FoundMarker | None:
        """The first marker; of several at one place the longest."""
        if self._first is None:
            return None
        folded, offsets = (text, None) if text.isascii() else _folded(text)
        for match in self._first.finditer(folded):
            start = match.start()
            marker = self._at(folded, start)
            if marker is not None:
                return FoundMarker(start if offsets is None else offsets[start], marker)
        return None

    def _at(self, folded: str, start: int) -> str | None:
        for size in range(_KEY, 0, -1):
            for length in self._lengths.get(folded[start : start + size], ()):
                marker = self._by_folded.get(folded[start : start + length])
                if marker is not None:
                    return marker
        return None

    def check(self, conversation: Conversation) -> None:
        """Raise ConversationError, with the path, the offset and the marker, for the first one that a client wrote.

        Answers that the server recognised as its own are not looked at: to refuse them would end the conversation.
        """
        own = {index for index, message in enumerate(conversation.messages) if message.kept is not None}
        for path, text in client_strings(conversation):
            if path[0] == "messages" and path[1] in own:
                continue
            found = self.find(text) or (_escaped(self, text) if path[-1] == "arguments" else None)
            if found is not None:
                raise refused(path, found)


def refused(path: Path, found: FoundMarker) -> ConversationError:
    """The error for a marker at a place."""
    return ConversationError(
        f"The text holds the marker {found.marker!r} at character {found.offset}, and this server refuses markers.",
        path,
        offset=found.offset,
        marker=found.marker,
    )


def _escaped(finder: MarkerFinder, arguments: str) -> FoundMarker | None:
    """A marker that is spelled with JSON's escapes; its place is the first of them."""
    found = finder.find(respaced(arguments)) if "\\" in arguments else None
    return None if found is None else FoundMarker(arguments.index("\\"), found.marker)


def _folded(text: str) -> tuple[str, list[int]]:
    """The text as a normaliser may fold it, and for each of its characters the place that it comes from."""
    parts: list[str] = []
    offsets: list[int] = []
    for place, character in enumerate(text):
        part = character if character.isascii() else _fold(character)
        parts.append(part)
        offsets += [place] * len(part)
    return "".join(parts), offsets


def _fold(character: str) -> str:
    """One character in its compatibility form; none for those that are not seen."""
    if unicodedata.category(character) == "Cf" or "\ufe00" <= character <= "\ufe0f":
        return ""
    return unicodedata.normalize("NFKC", character)
