"""ChatML: `<|im_start|>role`, a line break, the text, `<|im_end|>`, a line break; maybe with a default system
message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forebay.recipe.conversation import Conversation
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.templates.answers import kept_or
from forebay.recipe.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class ChatML:
    """One member of the family; `default_system` is put before a conversation that has no system message of its own."""

    start: int
    end: int
    default_system: str | None = None
    name: str = "chatml"

    @classmethod
    def of(cls, vocabulary: Vocabulary, default_system: str | None = None) -> ChatML:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        return cls(vocabulary.control_id("<|im_start|>"), vocabulary.control_id("<|im_end|>"), default_system)

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation, and the head of the assistant's turn; with `continue_final` its last message stays open."""
        messages = conversation.messages
        if self.default_system is not None and messages[0].role != "system":
            yield from (Control(self.start), Words("system\n" + self.default_system), Control(self.end), Words("\n"))
        closed = messages[:-1] if continue_final else messages
        for message in closed:
            yield from self._head(message.role)
            yield from kept_or(message, [Text(message.content, message.origin)], reasoning=False)
            yield from (Control(self.end), Words("\n"))
        yield from self._head("assistant")
        if continue_final:
            yield from kept_or(messages[-1], [Text(messages[-1].content, messages[-1].origin)], reasoning=False)

    def _head(self, role: str) -> Iterator[Piece]:
        yield Control(self.start)
        yield Words(role + "\n")
