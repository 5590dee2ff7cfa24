"""Keeps typed delimiters apart from real ones where a model spells its delimiters as plain text.

Llama 2's `[INST]` is no control token: the template's and a user's would be the same ids, and a user could forge a
turn. So a typed delimiter is cut at a place where the real one never is cut, and the two parts are encoded apart. The
text stays the same, character for character; only its ids differ from those of structure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from forebay.core.errors import UnsupportedModelError
from forebay.recipe.classify import MARKER
from forebay.recipe.pieces import Piece, Words
from forebay.recipe.selftest import look_alikes
from forebay.recipe.vocabulary import Prefix, Vocabulary

_AROUND: Final = (
    ("", ""),
    (" ", ""),
    ("", " "),
    (" ", " "),
    ("\n", "\n"),
    ("a", "a"),
    (". ", " a"),
    ("\n", " a"),
    ("a ", "\n"),
)
_HEADING: Final = re.compile(r"### [A-Z][a-z]+:|\b(?:USER|ASSISTANT|SYSTEM|User|Assistant|System|Human):")
"""Alpaca's and Vicuna's kind."""
_TAG: Final = re.compile(r"</?[a-z]+(?:_[a-z]+)*>")
"""What encloses tools, calls, results and reasoning: `<tool_response>`."""


def plain_delimiters(pieces: Iterable[Piece]) -> set[str]:
    """The delimiters among the template's plain words, by their shape; others can be typed as they are."""
    words = {piece.text for piece in pieces if isinstance(piece, Words)}
    return {match[0] for text in words for shape in (MARKER, _HEADING, _TAG) for match in shape.finditer(text)}


class Delimiters:
    """Finds typed delimiters in texts and says where to cut."""

    def __init__(self, vocabulary: Vocabulary, spellings: Iterable[str]) -> None:
        """Raises UnsupportedModelError when a delimiter can't be told from text in this vocabulary."""
        self._cuts = {spelling: _cut_places(vocabulary, spelling) for spelling in spellings}
        ordered = sorted(self._cuts, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def parts(self, text: str) -> list[str]:
        """The text in the parts that have to be encoded apart; one when nothing in it looks like a delimiter."""
        if self._pattern is None:
            return [text]
        cuts = [match.start() + place for match in self._pattern.finditer(text) for place in self._cuts[match[0]]]
        return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _cut_places(vocabulary: Vocabulary, spelling: str) -> list[int]:
    """A place inside the delimiter that lies within a token wherever the delimiter stands; else all places, when one of
    them always does."""
    inside = set(range(1, len(spelling)))
    common = set(inside)
    always = True
    for before, after in _AROUND:
        for continued in (False, True) if vocabulary.prefix is not Prefix.NONE else (False,):
            _, offsets = vocabulary.plain_encoding(before + spelling + after, continued=continued)
            edges = {edge - len(before) for offset in offsets for edge in offset}
            common -= edges
            always = always and not inside <= edges
    folded = any(vocabulary.plain_ids(each) == vocabulary.plain_ids(spelling) for each in look_alikes(spelling))
    if folded or not always:
        raise UnsupportedModelError(
            f"The model's chat template delimits turns by the plain text {spelling!r}, which its tokenizer can't tell "
            f"from the same text typed by a user, or from one that only looks like it."
        )
    return [min(common)] if common else sorted(inside)
