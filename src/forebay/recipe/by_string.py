"""What the same conversation becomes when it is rendered as one string and tokenised with control tokens recognised, as
`transformers` and most servers do. For comparison only: nothing that is made here is ever served.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from forebay.core.prompt import Origin
from forebay.recipe.pieces import Control, Kept, Piece, Text
from forebay.recipe.vocabulary import Prefix, Vocabulary


@dataclass(frozen=True, slots=True)
class StringToken:
    """One token of a string rendering."""

    id: int
    origin: Origin
    """Who wrote the first character that it stands for, of those that are not the template's."""
    control: bool
    forged: bool
    """A control token that the template did not put in."""


@dataclass(frozen=True, slots=True)
class Spelled:
    """A conversation as one string, with what only its maker knows: where each piece ends."""

    text: str
    borders: Sequence[tuple[int, Origin]]
    """The (end, origin) of each piece, in characters."""
    structure: frozenset[tuple[int, int]]
    """The places [start, end) of the template's own control tokens."""


class StringRendering:
    """Renders pieces as a string, with one vocabulary. It follows the pieces of the template that is in use, which at
    start was compared with the model's own Jinja template."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._spellings = {token_id: spelling for spelling, token_id in vocabulary.control.items()}
        self._control = re.compile(_pattern(sorted(filter(None, vocabulary.control))))

    def spell(self, pieces: Iterable[Piece]) -> Spelled:
        """The pieces as one string."""
        parts: list[str] = []
        borders: list[tuple[int, Origin]] = []
        structure: set[tuple[int, int]] = set()
        end = 0
        for piece in pieces:
            text, origin = self._spelled(piece)
            if isinstance(piece, Control):
                structure.add((end, end + len(text)))
            elif isinstance(piece, Kept):
                structure.update((end + match.start(), end + match.end()) for match in self._control.finditer(text))
            parts.append(text)
            end += len(text)
            borders.append((end, origin))
        return Spelled("".join(parts), borders, frozenset(structure))

    def finds_control(self, text: str) -> bool:
        """Whether a control token would be recognised in a text."""
        return self._control.search(text) is not None

    def forged(self, spelled: Spelled) -> int:
        """How many control tokens would be recognised that the template did not put in."""
        return sum(match.span() not in spelled.structure for match in self._control.finditer(spelled.text))

    def tokens(self, spelled: Spelled) -> list[StringToken]:
        """The tokens of the string, BOS first where the model expects it and the template put none."""
        found = list(self._tokens(spelled))
        bos = self._vocabulary.bos_id if self._vocabulary.adds_bos else None
        if bos is not None and (not found or found[0].id != bos):
            found.insert(0, StringToken(bos, Origin.TEMPLATE, control=True, forged=False))
        return found

    def _tokens(self, spelled: Spelled) -> Iterator[StringToken]:
        origins = _Origins(spelled.borders)
        at = 0
        for match in self._control.finditer(spelled.text):
            yield from self._plain(spelled.text, at, match.start(), origins)
            forged = match.span() not in spelled.structure
            origin = origins.of(match.start(), match.end()) if forged else Origin.TEMPLATE
            yield StringToken(self._vocabulary.control_id(match[0]), origin, control=True, forged=forged)
            at = match.end()
        yield from self._plain(spelled.text, at, len(spelled.text), origins)

    def _plain(self, text: str, start: int, end: int, origins: _Origins) -> Iterator[StringToken]:
        if start == end:
            return
        continued = start > 0 and self._vocabulary.prefix is Prefix.START
        ids, offsets = self._vocabulary.plain_encoding(text[start:end], continued=continued)
        for token, (first, last) in zip(ids, offsets, strict=True):
            yield StringToken(token, origins.of(start + first, start + last), control=False, forged=False)

    def _spelled(self, piece: Piece) -> tuple[str, Origin]:
        if isinstance(piece, Control):
            return self._spellings[piece.id], Origin.TEMPLATE
        if isinstance(piece, Kept):
            raw = b"".join(map(self._vocabulary.token_bytes, piece.ids))
            return raw.decode("utf-8", "replace"), Origin.ASSISTANT
        return piece.text, piece.origin if isinstance(piece, Text) else Origin.TEMPLATE


def _pattern(spellings: Sequence[str], at: int = 0) -> str:
    """A regular expression for sorted spellings that are alike up to `at`, the longest first at each place, as in a
    tokenizer's own search. It branches where they differ: thousands of alternatives in a row would be slow."""
    if not spellings:
        return "(?!)"
    if len(spellings) == 1:
        return re.escape(spellings[0][at:])
    groups = [list(group) for _, group in groupby(spellings, key=lambda spelling: spelling[at : at + 1])]
    ends = not groups[0][0][at:]
    longer = [re.escape(group[0][at]) + _pattern(group, at + 1) for group in (groups[1:] if ends else groups)]
    return longer[0] if len(groups) == 1 else f"(?:{'|'.join(longer)}){'?' if ends else ''}"


class _Origins:
    """Who wrote the characters of a range; ranges are asked for from left to right."""

    def __init__(self, borders: Sequence[tuple[int, Origin]]) -> None:
        self._borders = borders
        self._at = 0

    def of(self, start: int, end: int) -> Origin:
        """The first origin within [start, end) that is not the template's, else the template."""
        borders = self._borders
        while self._at < len(borders) - 1 and borders[self._at][0] <= start:
            self._at += 1
        at = self._at
        while borders[at][1] is Origin.TEMPLATE and borders[at][0] < end and at < len(borders) - 1:
            at += 1
        return borders[at][1]
