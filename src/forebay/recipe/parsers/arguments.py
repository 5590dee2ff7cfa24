"""The arguments of a call as they come: passed on in their own spelling while they are checked."""

from __future__ import annotations

from forebay.recipe.parsers.json_object import ObjectReader
from forebay.recipe.parsers.output import Output


class Arguments:
    """One JSON object, the arguments of the output's open call."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._reader = ObjectReader()
        self._begun = False

    @property
    def done(self) -> bool:
        """The object is complete."""
        return self._reader.done

    @property
    def failed(self) -> bool:
        """It is no JSON object."""
        return self._reader.failed

    @property
    def in_string(self) -> bool:
        """Whether the next character belongs to a string."""
        return self._reader.in_string

    @property
    def keys(self) -> list[str]:
        """The arguments' names, with repetitions."""
        return self._reader.keys

    def feed(self, text: str, at: int = 0) -> int:
        """Take characters from `at` on; only what keeps the object valid is passed on. Returns the place of the first
        one that was not taken."""
        end = self._reader.feed(text, at)
        taken = text[at:end] if self._begun else text[at:end].lstrip()
        self._begun = self._begun or bool(taken)
        self._out.arguments(taken)
        return end
