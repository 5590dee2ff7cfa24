"""What a run of the injection corpus counts, and its shape as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

_EXAMPLES: Final = 20


@dataclass(slots=True)
class FieldCount:
    """What happened in one field."""

    cases: int = 0
    """Spellings and forms that were encoded."""
    refused: int = 0
    """Those that were refused with an error, which is safe too."""
    forged: int = 0
    """Cases with a control token that the template did not put in."""
    by_string: int = 0
    """Cases in which rendering the same as a string makes a control token of the text."""
    shown: bool = False
    """Whether what stands in the field reaches the prompt."""
    why_refused: str = ""
    """The last reason."""


@dataclass(slots=True)
class CorpusReport:
    """What the corpus found."""

    fields: dict[str, FieldCount] = field(default_factory=dict)
    turns: int = 0
    """Attempts to pass one conversation off as another."""
    collisions: int = 0
    """Pairs of different conversations with equal ids."""
    joined: set[str] = field(default_factory=set)
    """Sequences of roles in which the template puts messages into one turn, with nothing but white space between."""
    examples: list[str] = field(default_factory=list)
    """The first of what was forged or collides."""

    @property
    def cases(self) -> int:
        """All that was encoded."""
        return sum(count.cases for count in self.fields.values()) + self.turns

    @property
    def refused(self) -> int:
        """All that was refused."""
        return sum(count.refused for count in self.fields.values())

    @property
    def forged(self) -> int:
        """Cases with a control token that the template did not put in."""
        return sum(count.forged for count in self.fields.values())

    @property
    def forged_by_string(self) -> int:
        """The same for string rendering."""
        return sum(count.by_string for count in self.fields.values())

    @property
    def clean(self) -> bool:
        """Whether nothing was forged and nothing collides."""
        return not self.forged and not self.collisions

    def add_example(self, text: str) -> None:
        """Remember what went wrong."""
        if len(self.examples) < _EXAMPLES:
            self.examples.append(text)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "cases": self.cases,
            "forged": self.forged,
            "forged_by_string_rendering": self.forged_by_string,
            "collisions": self.collisions,
            "refused": self.refused,
            "turn_forgeries_tried": self.turns,
            "fields": {
                name: {
                    "cases": count.cases,
                    "refused": count.refused,
                    "forged": count.forged,
                    "forged_by_string_rendering": count.by_string,
                    "reaches_the_prompt": count.shown,
                    **({"refused_because": count.why_refused} if count.why_refused else {}),
                }
                for name, count in self.fields.items()
            },
            "joined_in_one_turn": sorted(self.joined),
            "examples": self.examples,
        }
