"""Which spellings the injection corpus types, and which of them stand for many alike."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from forebay.recipe.recipe import Recipe

_NUMBER: Final = re.compile(r"\d+")
ALONE_IN_CLASS: Final = 6
"""How many spellings of a class that differ only by a number are tried by themselves."""


@dataclass(frozen=True, slots=True)
class TokenClass:
    """Spellings that differ only by a number; most classes have one."""

    pattern: str
    """The spelling with # for each number."""
    spellings: tuple[str, ...]

    @property
    def alone(self) -> tuple[str, ...]:
        """Those that are tried by themselves: all of a small class, else some that are spread over it."""
        last = len(self.spellings) - 1
        if last < ALONE_IN_CLASS:
            return self.spellings
        places = {round(step * last / (ALONE_IN_CLASS - 1)) for step in range(ALONE_IN_CLASS)}
        return tuple(self.spellings[place] for place in sorted(places))

    @property
    def together(self) -> tuple[str, ...]:
        """The others, which are tried many at a time."""
        alone = set(self.alone)
        return tuple(spelling for spelling in self.spellings if spelling not in alone)


def classes_of(spellings: Iterable[str]) -> list[TokenClass]:
    """The classes of spellings, in order of their first one."""
    found: dict[str, list[str]] = {}
    for spelling in spellings:
        found.setdefault(_NUMBER.sub("#", spelling), []).append(spelling)
    return [TokenClass(pattern, tuple(members)) for pattern, members in found.items()]


def typed_spellings(recipe: Recipe) -> list[str]:
    """What looks like structure to this model: its control tokens, and the plain text that delimits its turns."""
    control = [spelling for spelling in recipe.vocabulary.control if spelling.strip()]
    return [*control, *sorted(recipe.delimiters)]
