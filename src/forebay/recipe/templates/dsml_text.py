"""Calls in DeepSeek's DSML: a tag around each argument, of which one piece is a control token.

The tags' other pieces are the template's words; names and values are text, in which a typed marker stays text. A value
that is a string goes in as it is, any other as JSON. A name that holds a quote, which the format has no way to spell,
is escaped as in JSON, so that it can't close its attribute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forebay.core.prompt import Origin
from forebay.recipe.conversation import ToolCall
from forebay.recipe.parsers.json_object import ObjectReader
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.templates.json_text import inner, respaced


@dataclass(frozen=True, slots=True)
class Dsml:
    """One version's tags."""

    mark: int
    """The token in every tag."""
    block: str
    invoke: str
    parameter: str
    empty: str
    """What stands in a call without arguments, behind the line break of its first tag."""

    def calls(self, calls: Sequence[ToolCall]) -> Iterator[Piece]:
        """A block of calls, with the empty line before it."""
        yield from (Words("\n\n<"), Control(self.mark), Words(f"{self.block}>\n"))
        for call in calls:
            yield from self._call(call)
        yield from self._close(self.block)

    def _call(self, call: ToolCall) -> Iterator[Piece]:
        yield from (Words("<"), Control(self.mark), Words(f'{self.invoke} name="'), _name(call.name), Words('">\n'))
        arguments = members(call.arguments)
        if arguments is None:
            yield from self._argument("arguments", call.arguments, is_text=True)
        for key, spelling in arguments or ():
            text = _string(spelling)
            if text is None:
                yield from self._argument(key, respaced(spelling), is_text=False)
            else:
                yield from self._argument(key, text, is_text=True)
        if arguments == []:
            yield Words(self.empty)
        yield from self._close(self.invoke)
        yield Words("\n")

    def _argument(self, name: str, value: str, *, is_text: bool) -> Iterator[Piece]:
        yield from (Words("<"), Control(self.mark), Words(f'{self.parameter} name="'), _name(name))
        yield from (Words(f'" string="{"true" if is_text else "false"}">'), Text(value, Origin.ASSISTANT))
        yield from self._close(self.parameter)
        yield Words("\n")

    def _close(self, tag: str) -> Iterator[Piece]:
        yield from (Words("</"), Control(self.mark), Words(f"{tag}>"))


def spelled_name(name: str) -> str:
    """A name as it stands between an attribute's quotes."""
    return inner(name) if '"' in name else name


def _name(name: str) -> Text:
    return Text(spelled_name(name), Origin.ASSISTANT)


def _string(spelling: str) -> str | None:
    """The text of a JSON string; None for another value, and for a string that holds half of a surrogate pair, which
    JSON can spell and a text can't."""
    if not spelling.startswith('"'):
        return None
    text: str = json.loads(spelling)
    return None if any("\ud800" <= char <= "\udfff" for char in text) else text


def members(text: str) -> list[tuple[str, str]] | None:
    """An object's members in order, each key decoded and each value in its own spelling; None for any other text."""
    found: list[tuple[str, str]] = []
    pieces: list[str] = []

    def take(key: str, piece: str, complete: bool) -> None:
        pieces.append(piece)
        if complete:
            found.append((key, "".join(pieces)))
            pieces.clear()

    reader = ObjectReader(take)
    end = reader.feed(text)
    return found if reader.done and not text[end:].strip() else None
