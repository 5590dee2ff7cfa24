"""Gemma 2 and 3: turns of the roles `user` and `model`, strictly alternating, with trimmed texts.

Gemma 3 puts a system message before the first question's text; Gemma 2 has no place for one. Neither has one for tools.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forebay.core.errors import ConversationError
from forebay.recipe.conversation import Conversation, Message
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.templates.answers import kept_or
from forebay.recipe.templates.refusals import check_turns, refuse_tools
from forebay.recipe.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Gemma:
    """One generation, bound to a vocabulary."""

    name: str
    bos: int
    start: int
    end: int
    takes_system: bool

    @classmethod
    def of(cls, vocabulary: Vocabulary, name: str, *, takes_system: bool) -> Gemma:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        start, end = vocabulary.control_id("<start_of_turn>"), vocabulary.control_id("<end_of_turn>")
        return cls(name, vocabulary.control_id("<bos>"), start, end, takes_system)

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation, and the head of the model's turn; with `continue_final` its last message stays open.

        Raises ConversationError when the roles are out of order, InvalidRequestError for tools.
        """
        refuse_tools(conversation)
        messages = conversation.messages
        system = messages[0] if messages[0].role == "system" else None
        if system is not None and not self.takes_system:
            raise ConversationError(
                "This model's chat template has no place for a system message.", ("messages", 0, "role")
            )
        first = 0 if system is None else 1
        turns = [(at, message) for at, message in enumerate(messages) if at >= first]
        check_turns(turns, system=True)
        yield Control(self.bos)
        for at, message in turns:
            yield from self._turn(message, system if at == first else None)
            if not (continue_final and at == len(messages) - 1):
                yield from (Control(self.end), Words("\n"))
        if not continue_final:
            yield from self._head("model")

    def _turn(self, message: Message, system: Message | None) -> Iterator[Piece]:
        yield from self._head("model" if message.role == "assistant" else message.role)
        if system is not None:
            yield from (Text(system.content, system.origin), Words("\n\n"))
        yield from kept_or(message, [Text(message.content.strip(), message.origin)], reasoning=False)

    def _head(self, role: str) -> Iterator[Piece]:
        yield from (Control(self.start), Words(role + "\n"))
