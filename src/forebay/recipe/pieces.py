"""What a template makes of a conversation: structure and text as different types.

A template returns a list of pieces, never a string, so there is no call that could mistake a user's text for structure:
only `Control` becomes a control token, and it carries an id, not a spelling. `Kept` carries ids too, which come from
the server's own memory of an answer and never from a request.
"""

from __future__ import annotations

from dataclasses import dataclass

from forebay.core.prompt import Origin


@dataclass(frozen=True, slots=True)
class Control:
    """One control token."""

    id: int


@dataclass(frozen=True, slots=True)
class Words:
    """The template's own plain words, such as a role's name. They are encoded like any text, without control tokens."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """Someone's text. Every control spelling in it stays text."""

    text: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Kept:
    """What this server's model produced, as it produced it; control tokens that the model wrote (of reasoning, of
    calls) are among it. Only the server makes one, see `conversation.KeptAnswer`."""

    ids: tuple[int, ...]


Piece = Control | Words | Text | Kept
