"""Llama 3: a header of control tokens with the role's name, two line breaks, the trimmed text, `<|eot_id|>`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from forebay.recipe.conversation import Conversation, Message
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.vocabulary import Vocabulary

_CUTOFF = "Cutting Knowledge Date: December 2023\nToday Date: "


@dataclass(frozen=True, slots=True)
class Llama3:
    """Llama 3, and from 3.1 on with the dates in a system message that is always there."""

    name: str
    begin: int
    header: int
    header_end: int
    end: int
    today: Callable[[], str] | None = None
    """From 3.1 on: the date that the system message states."""

    @classmethod
    def of(cls, vocabulary: Vocabulary, name: str, today: Callable[[], str] | None = None) -> Llama3:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        begin, header = vocabulary.control_id("<|begin_of_text|>"), vocabulary.control_id("<|start_header_id|>")
        header_end, end = vocabulary.control_id("<|end_header_id|>"), vocabulary.control_id("<|eot_id|>")
        return cls(name, begin, header, header_end, end, today)

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation, and the head of the assistant's turn; with `continue_final` its last message stays open."""
        messages = conversation.messages
        yield Control(self.begin)
        if self.today is not None:
            first = messages[0] if messages[0].role == "system" else None
            yield from self._dated_system(first, self.today())
            messages = messages[1:] if first is not None else messages
        for message in messages[:-1] if continue_final else messages:
            yield from self._head(message.role)
            yield _trimmed(message)
            yield Control(self.end)
        yield from self._head("assistant")
        if continue_final:
            yield _trimmed(messages[-1])

    def _dated_system(self, message: Message | None, today: str) -> Iterator[Piece]:
        yield from self._head("system", f"{_CUTOFF}{today}\n\n")
        if message is not None:
            yield _trimmed(message)
        yield Control(self.end)

    def _head(self, role: str, words: str = "") -> Iterator[Piece]:
        yield from (Control(self.header), Words(role), Control(self.header_end), Words("\n\n" + words))


def _trimmed(message: Message) -> Text:
    return Text(message.content.strip(), message.origin)
