"""One tag of DSML, as its characters come: what follows the marker, up to the closing angle bracket."""

from __future__ import annotations

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
    """Reads up to the `>` that ends the tag, which in a tag with attributes is the one behind a quote."""

    def __init__(self, marker: Marker, *, closing: bool) -> None:
        self.marker = marker
        self._closing = closing
        self._text: list[str] = []
        self._size = 0
        self._quoted = False
        self._last = ""
        self.over = False
        """It is complete, or too long to be a tag."""

    def feed(self, text: str, at: int) -> int:
        """Take characters from `at` on; returns the place of the first one that was not taken."""
        start = at
        while at < len(text) and not self.over:
            char = text[at]
            at += 1
            self.over = (char == ">" and (not self._quoted or self._last == '"')) or self._size + at - start >= _MAX
            self._quoted = self._quoted or char == '"'
            self._last = char
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
        return Tag(found[1], self._closing, found[2], string)
