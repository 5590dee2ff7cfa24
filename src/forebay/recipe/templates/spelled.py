"""Structure that is written down as a string, such as a template's words about tools, as pieces: a control token where
the vocabulary has one of that spelling, plain words elsewhere.

Only for what a template spells itself. A text of someone's never comes here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from forebay.recipe.pieces import Control, Words

_KEPT: Final = 1024


class Speller:
    """Splits structure at a vocabulary's control tokens. Templates repeat themselves, so what was split is kept."""

    def __init__(self, control: Mapping[str, int]) -> None:
        self._control = control
        self._known: dict[str, tuple[Control | Words, ...]] = {}

    def pieces(self, structure: str) -> tuple[Control | Words, ...]:
        """Its pieces; of two spellings that begin at one place, the longer one counts."""
        known = self._known.get(structure)
        if known is None:
            known = tuple(self._split(structure))
            if len(self._known) < _KEPT:
                self._known[structure] = known
        return known

    def _split(self, structure: str) -> Iterator[Control | Words]:
        spellings = sorted((each for each in self._control if each in structure), key=len, reverse=True)
        pattern = re.compile("(" + "|".join(map(re.escape, spellings)) + ")") if spellings else None
        for place, part in enumerate(pattern.split(structure) if pattern is not None else (structure,)):
            if place % 2:
                yield Control(self._control[part])
            elif part:
                yield Words(part)
