"""One tag of DSML, as its characters come: what follows the marker, up to the closing angle bracket."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from forebay.recipe.parsers.markers import Marker

_MAX: Final = 4096
_TAG: Final = re.compile(r'\s*([a-z_]+)(?:\s+name="(.*?)"(?:\s+string="(true|false)")?)?\s*', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag that is complete."""

    name: str
    closing: bool
    attribute: str | None
    """The attribute `name`, with all quotes that are in it."""
    string: bool | None
    """The attribute `string`, where it is there."""


class TagReader:
    """Reads up to the `>` that ends the tag, which in a tag with attributes is the one behind a quote; not behind one
    with a backslash, as the template writes a quote within a name."""

    def __init__(self, marker: Marker, *, closing: bool) -> None:
        self.marker = marker
        self._closing = closing
        self._text: list[str] = []
        self._size = 0
        self._quoted = False
        self._escaped = False
        """The next character stands behind a backslash."""
        self._closed = False
        """The last character was a quote, and none with a backslash."""
        self.over = False
        """It is complete, or too long to be a tag."""

    def feed(self, text: str, at: int) -> int:
        """Take characters from `at` on; returns the place of the first one that was not taken."""
        start = at
        while at < len(text) and not self.over:
            char = text[at]
            at += 1
            self.over = (char == ">" and (not self._quoted or self._closed)) or self._size + at - start >= _MAX
            self._quoted = self._quoted or char == '"'
            self._closed = char == '"' and not self._escaped
            self._escaped = char == "\\" and not self._escaped
        self._text.append(text[start:at])
        self._size += at - start
        return at

    @property
    def spelling(self) -> tuple[str, str]:
        """What stands before and behind the marker."""
        return "</" if self._closing else "<", "".join(self._text)

    @property
    def tag(self) -> Tag | None:
        """The tag; None when it is none."""
        text = self.spelling[1]
        found = _TAG.fullmatch(text, 0, len(text) - 1) if text.endswith(">") else None
        if found is None:
            return None
        string = None if found[3] is None else found[3] == "true"
        return Tag(found[1], self._closing, _name(found[2]), string)


def _name(spelling: str | None) -> str | None:
    """An attribute's value; one with an escaped quote is spelled as in JSON, any other as it is."""
    if spelling is None or '\\"' not in spelling:
        return spelling
    try:
        name: str = json.loads(f'"{spelling}"')
    except ValueError:
        return spelling
    return name
