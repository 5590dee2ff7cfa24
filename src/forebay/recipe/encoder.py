"""Pieces to a prompt: control tokens by id, everything between two of them by the plain tokenizer, with provenance.

The words and texts between two control tokens are one *run* and are encoded together, because a template that puts text
behind a space ("USER: …") was trained with tokens that cross that border. Where the words end a line, the run is cut:
the structure's ids then are the same whatever the text is, and a history re-encodes to the ids that were generated. A
token that crosses a border counts as text, never as the template's. Kept ids of an answer go in as they are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from forebay.core.prompt import Origin, Prompt, Span
from forebay.recipe.delimiters import Delimiters
from forebay.recipe.pieces import Control, Kept, Piece, Text, Words
from forebay.recipe.run_cache import Encoded, RunCache
from forebay.recipe.swallowed import without_swallowed
from forebay.recipe.vocabulary import EncodedRun, Prefix, Vocabulary

_KNOWN_WORDS: Final = 1024
_STARTS: Final = ("What", "a", "1", "(", "\u00e9", "\u4e00", '"', "#")


class PromptEncoder:
    """Encodes pieces with one vocabulary."""

    def __init__(self, vocabulary: Vocabulary, delimiters: Delimiters | None = None) -> None:
        self._vocabulary = vocabulary
        self._delimiters = delimiters or Delimiters(vocabulary, ())
        self._cache = RunCache()
        self._closing: dict[str, bool] = {}

    def encode(self, pieces: Iterable[Piece]) -> Prompt:
        """Return the ids and spans. The model's BOS is put first when it expects one and the pieces have none."""
        slots = list(self._slots(without_swallowed(pieces, self._vocabulary)))
        encoded = self._encoded([slot for slot in slots if isinstance(slot, _Group)])
        build = _Builder()
        for slot in slots:
            if isinstance(slot, Control):
                build.add([slot.id], Origin.TEMPLATE)
            elif isinstance(slot, Kept):
                build.add(slot.ids, Origin.ASSISTANT)
            else:
                for ids, origin in encoded[slot]:
                    build.add(ids, origin)
        return build.prompt(self._vocabulary.bos_id if self._vocabulary.adds_bos else None)

    def _slots(self, pieces: Iterable[Piece]) -> Iterator[Control | Kept | _Group]:
        """What has ids of its own, and between them the groups that are encoded together."""
        run: list[Words | Text] = []
        continued = False
        for piece in pieces:
            if isinstance(piece, Words | Text):
                run.append(piece)
                continue
            yield from self._run(run, continued)
            run = []
            continued = isinstance(piece, Kept) or self._vocabulary.prefix is Prefix.START
            yield piece
        yield from self._run(run, continued)

    def _run(self, run: Sequence[Words | Text], continued: bool) -> Iterator[_Group]:
        for group in self._groups(run):
            yield _Group(continued, tuple(group))
            continued = True

    def _groups(self, run: Sequence[Words | Text]) -> list[list[Words | Text]]:
        """Split a run behind words that end a line, and within typed delimiters; pieces without text are dropped."""
        groups: list[list[Words | Text]] = [[]]
        for piece in run:
            if not piece.text:
                continue
            if isinstance(piece, Words):
                groups[-1].append(piece)
                continue
            if groups[-1] and self._closes(groups[-1][-1]):
                groups.append([])
            first, *others = self._delimiters.parts(piece.text)
            groups[-1].append(Text(first, piece.origin))
            groups += [[Text(part, piece.origin)] for part in others]
        return [group for group in groups if group]

    def _closes(self, piece: Words | Text) -> bool:
        """Whether the words end a line, and text that begins with no space has the same ids behind them either way."""
        if not isinstance(piece, Words) or not piece.text.endswith("\n") or self._vocabulary.prefix is not Prefix.NONE:
            return False
        known = self._closing.get(piece.text)
        if known is None:
            plain = self._vocabulary.plain_ids
            alone = plain(piece.text)
            known = all(plain(piece.text + start) == alone + plain(start) for start in _STARTS)
            if len(self._closing) < _KNOWN_WORDS:
                self._closing[piece.text] = known
        return known

    def _encoded(self, groups: Iterable[_Group]) -> dict[_Group, Encoded]:
        """The ids of each group, from the cache where it has them; the others are encoded at once, side by side."""
        found: dict[_Group, Encoded] = {}
        new: dict[_Group, None] = {}
        for group in groups:
            known = found.get(group) or self._cache.get(group)
            if known is None:
                new[group] = None
            else:
                found[group] = known
        if new:
            for group, encoded in self._encoded_anew(list(new)):
                self._cache.put(group, encoded, len(group.text))
                found[group] = encoded
        return found

    def _encoded_anew(self, groups: list[_Group]) -> Iterator[tuple[_Group, Encoded]]:
        for continued in (False, True):
            single = [group for group in groups if group.continued is continued and len(group.pieces) == 1]
            texts = self._vocabulary.plain_batch([group.text for group in single], continued=continued)
            for group, ids in zip(single, texts, strict=True):
                yield group, [(array("I", ids), _owner(group.pieces[0]))]
            mixed = [group for group in groups if group.continued is continued and len(group.pieces) > 1]
            runs = self._vocabulary.plain_runs([group.text for group in mixed], continued=continued)
            for group, run in zip(mixed, runs, strict=True):
                yield group, _by_origin(group, run)


@dataclass(frozen=True, slots=True)
class _Group:
    """Pieces that are encoded together, and whether they follow other text."""

    continued: bool
    pieces: tuple[Words | Text, ...]

    @property
    def text(self) -> str:
        return self.pieces[0].text if len(self.pieces) == 1 else "".join(piece.text for piece in self.pieces)


def _by_origin(group: _Group, run: EncodedRun) -> Encoded:
    borders = _borders(group.pieces)
    encoded: Encoded = []
    done = 0
    for end, origin in borders[:-1]:
        before, behind = run.around(end)
        if before > done:
            encoded.append((array("I", run.ids[done:before]), origin))
        for token in range(max(before, done), behind):
            encoded.append((array("I", run.ids[token : token + 1]), _origin(borders, *run.characters(token))))
        done = max(done, behind)
    encoded.append((array("I", run.ids[done:]), borders[-1][1]))
    return encoded


def _owner(piece: Words | Text) -> Origin:
    return piece.origin if isinstance(piece, Text) else Origin.TEMPLATE


def _borders(pieces: Iterable[Words | Text]) -> list[tuple[int, Origin]]:
    """The (end, origin) of each piece, in characters of the joined text."""
    borders: list[tuple[int, Origin]] = []
    end = 0
    for piece in pieces:
        end += len(piece.text)
        borders.append((end, _owner(piece)))
    return borders


def _origin(borders: list[tuple[int, Origin]], start: int, end: int) -> Origin:
    """The origin of a token of the characters [start, end): the first text that it touches."""
    at = next((place for place, border in enumerate(borders) if border[0] > start), len(borders) - 1)
    while borders[at][1] is Origin.TEMPLATE and borders[at][0] < end and at < len(borders) - 1:
        at += 1
    return borders[at][1]


class _Builder:
    """Ids and spans as they grow; neighbours of one origin become one span."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._spans: list[tuple[int, int, Origin]] = []

    def add(self, ids: Sequence[int], origin: Origin) -> None:
        if not ids:
            return
        start = len(self.ids)
        self.ids.extend(ids)
        if self._spans and self._spans[-1][2] is origin:
            start = self._spans.pop()[0]
        self._spans.append((start, len(self.ids), origin))

    def prompt(self, bos: int | None) -> Prompt:
        if bos is None or (self.ids and self.ids[0] == bos):
            return Prompt(self.ids, [Span(*span) for span in self._spans])
        whole = _Builder()
        whole.add([bos], Origin.TEMPLATE)
        for start, end, origin in self._spans:
            whole.add(self.ids[start:end], origin)
        return whole.prompt(None)
