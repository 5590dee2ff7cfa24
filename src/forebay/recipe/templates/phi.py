"""Phi: a control token for each role, the text, `<|end|>`; Phi-4 has a header instead, between two tokens of its own.

Neither has a place for tools.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forebay.recipe.conversation import Conversation, Message, Role
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.templates.answers import kept_or
from forebay.recipe.templates.refusals import refuse_tools
from forebay.recipe.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Phi3:
    """Phi-3 and 3.5; with `line` empty Phi-4-mini."""

    name: str
    roles: dict[Role, Control]
    end: Control
    line: str
    """Words behind each of the tokens."""

    @classmethod
    def of(cls, vocabulary: Vocabulary, name: str, line: str) -> Phi3:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        roles: list[Role] = ["system", "user", "assistant"]
        marks = {role: Control(vocabulary.control_id(f"<|{role}|>")) for role in roles}
        return cls(name, marks, Control(vocabulary.control_id("<|end|>")), line)

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation, and the head of the assistant's turn; with `continue_final` its last message stays open.

        Raises InvalidRequestError for tools.
        """
        refuse_tools(conversation)
        messages = conversation.messages
        for at, message in enumerate(messages):
            if message.role == "system" and not message.content:
                continue  # the published templates leave it out
            yield from self._head(message.role)
            yield from _text(message)
            if not (continue_final and at == len(messages) - 1):
                yield from (self.end, Words(self.line))
        if not continue_final:
            yield from self._head("assistant")

    def _head(self, role: Role) -> Iterator[Piece]:
        yield from (self.roles[role], Words(self.line))


@dataclass(frozen=True, slots=True)
class Phi4:
    """Phi-4."""

    start: Control
    header_end: Control
    end: Control
    name: str = "phi4"

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Phi4:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        start, header_end = vocabulary.control_id("<|im_start|>"), vocabulary.control_id("<|im_sep|>")
        return cls(Control(start), Control(header_end), Control(vocabulary.control_id("<|im_end|>")))

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation, and the head of the assistant's turn; with `continue_final` its last message stays open.

        Raises InvalidRequestError for tools.
        """
        refuse_tools(conversation)
        messages = conversation.messages
        for at, message in enumerate(messages):
            yield from self._head(message.role)
            yield from _text(message)
            if not (continue_final and at == len(messages) - 1):
                yield self.end
        if not continue_final:
            yield from self._head("assistant")

    def _head(self, role: Role) -> Iterator[Piece]:
        yield from (self.start, Words(role), self.header_end)


def _text(message: Message) -> Iterator[Piece]:
    yield from kept_or(message, [Text(message.content, message.origin)], reasoning=False)
