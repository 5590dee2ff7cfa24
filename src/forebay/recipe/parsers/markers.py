"""Token ids to items: text, and the markers that structure an answer. It doesn't know what a marker means.

Where the vocabulary has a marker as a control token, only that token is one: the same characters made of plain tokens
are text. Where it has not, the marker is its exact spelling. Control tokens never become text here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class TokenText(Protocol):
    """Plain tokens to text, as `forebay.recipe.Detokenizer` does."""

    def push(self, ids: Sequence[int]) -> str:
        """The text that is complete with these tokens."""

    def finish(self) -> str:
        """What was held back."""


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker, or any control token."""

    spelling: str
    token: int | None = None
    """The control token's id; None when it was spelled with plain tokens."""
    starts_line: bool = True
    """Spelled: whether only whitespace or another marker stands before it on its line."""
    starts_answer: bool = True
    """Spelled: whether only whitespace stands before it."""


Item = str | Marker


class MarkerReader:
    """Items of one answer."""

    def __init__(
        self, source: TokenText, control: Mapping[str, int], markers: Collection[str], stop_ids: Collection[int] = ()
    ) -> None:
        """`control`: ids of all control tokens by spelling. `markers`: the spellings that structure answers.
        `stop_ids`: tokens that end the answer.
        """
        self._source = source
        self._stop_ids = frozenset(stop_ids)
        self._control = {token: spelling for spelling, token in control.items()}
        self._control_ids = frozenset(self._control)
        spelled = sorted((marker for marker in markers if marker not in control), key=len, reverse=True)
        self._spelled = SpelledMarkers(spelled) if spelled else None

    def push(self, ids: Sequence[int]) -> Iterable[Item]:
        """Take new tokens. What is returned has to be gone through before the next push."""
        if not self._control_ids.isdisjoint(ids):
            return self._mixed(ids)
        text = self._source.push(ids)
        if self._spelled is None or not text:
            return (text,) if text else ()
        return self._spelled.push(text)

    def _mixed(self, ids: Sequence[int]) -> Iterator[Item]:
        start = 0
        for at, token in enumerate(ids):
            spelling = self._control.get(token)
            if spelling is not None:
                yield from self._text(self._source.push(ids[start:at]))
                yield from self._control_token(token, spelling)
                start = at + 1
        yield from self._text(self._source.push(ids[start:]))

    def ends(self, token: int) -> bool:
        """Whether the token ends the answer."""
        return token in self._stop_ids

    def finish(self) -> Iterator[Item]:
        """The answer is over: what was held back."""
        yield from self._text(self._source.finish())
        if self._spelled is not None:
            yield from self._spelled.finish()

    def _control_token(self, token: int, spelling: str) -> Iterator[Item]:
        """Half a character can't go on behind a marker, nor can a spelled one behind any token."""
        yield from self.finish()
        if self._spelled is not None:
            self._spelled.marked()
        yield Marker(spelling, token)

    def _text(self, text: str) -> Iterator[Item]:
        if not text:
            return
        if self._spelled is None:
            yield text
        else:
            yield from self._spelled.push(text)


class SpelledMarkers:
    """Finds exact spellings in text, in whatever pieces it comes. What may still become one is held back."""

    def __init__(self, markers: Sequence[str]) -> None:
        """`markers`: the longest first, so that of two that begin alike the longer wins."""
        self._markers = markers
        self._firsts = frozenset(marker[0] for marker in markers)
        self._held = ""
        self._line_start = True
        self._answer_start = True

    def push(self, text: str) -> Iterable[Item]:
        """Take new text."""
        if not self._held and self._firsts.isdisjoint(text):
            self._pass(text)
            return (text,)
        return self._split(self._held + text, final=False)

    def finish(self) -> Iterator[Item]:
        """What was held back is no marker."""
        yield from self._split(self._held, final=True)

    def marked(self) -> None:
        """Something that is not text came: a line begins behind it."""
        self._line_start, self._answer_start = True, False

    def _split(self, text: str, *, final: bool) -> Iterator[Item]:
        self._held = ""
        start = at = 0
        while at < len(text):
            if text[at] not in self._firsts:
                at += 1
                continue
            rest = text[at : at + len(self._markers[0])]
            found = next((marker for marker in self._markers if rest.startswith(marker)), None)
            longer = any(len(marker) > len(rest) and marker.startswith(rest) for marker in self._markers)
            if longer and not final:
                yield from self._passed(text[start:at])
                self._held = text[at:]
                return
            if found is None:
                at += 1
                continue
            yield from self._passed(text[start:at])
            yield Marker(found, None, self._line_start, self._answer_start)
            self.marked()
            start = at = at + len(found)
        yield from self._passed(text[start:])

    def _passed(self, text: str) -> Iterator[Item]:
        if text:
            self._pass(text)
            yield text

    def _pass(self, text: str) -> None:
        if not text.isspace():
            self._answer_start = False
            text = text[text.rfind("\n") :] if "\n" in text else text
            self._line_start = text.isspace()
        elif "\n" in text:
            self._line_start = True
