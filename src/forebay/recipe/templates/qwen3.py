"""Qwen3: ChatML with reasoning. The reasoning of earlier turns is dropped; a switch closes the reasoning before it
begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forebay.core.prompt import Origin
from forebay.recipe.conversation import Conversation, Message
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Qwen3:
    """The hybrid models, which reason unless told not to."""

    start: int
    end: int
    think: int
    think_end: int
    name: str = "qwen3"

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Qwen3:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        turn = vocabulary.control_id("<|im_start|>"), vocabulary.control_id("<|im_end|>")
        return cls(*turn, vocabulary.control_id("<think>"), vocabulary.control_id("</think>"))

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation, and the head of the assistant's turn; with `continue_final` its last message stays open."""
        messages = conversation.messages
        last_query = _last_query(messages)
        for at, message in enumerate(messages):
            final = at == len(messages) - 1
            yield from self._head(message.role)
            if message.role == "assistant":
                yield from self._answer(message, in_turn=at > last_query, final=final)
            else:
                yield Text(message.content, message.origin)
            if final and continue_final:
                return
            yield from (Control(self.end), Words("\n"))
        yield from self._head("assistant")
        if conversation.thinking is False:
            yield from self._reasoning("")

    def _answer(self, message: Message, *, in_turn: bool, final: bool) -> Iterator[Piece]:
        """An assistant message: `in_turn` when it comes after the last question, where reasoning is kept."""
        reasoning, content = _split(message.content)
        if in_turn and (final or reasoning):
            yield from self._reasoning(reasoning.strip("\n"))
            content = content.lstrip("\n")
        yield Text(content, message.origin)

    def _reasoning(self, text: str) -> Iterator[Piece]:
        yield from (Control(self.think), Words("\n"), Text(text, Origin.ASSISTANT), Words("\n"))
        yield from (Control(self.think_end), Words("\n\n"))

    def _head(self, role: str) -> Iterator[Piece]:
        yield from (Control(self.start), Words(role + "\n"))


def _split(text: str) -> tuple[str, str]:
    """An assistant's text as (reasoning, answer), parted at the closing mark that the client wrote as text."""
    if "</think>" not in text:
        return "", text
    reasoning = text.partition("</think>")[0].rstrip("\n").rpartition("<think>")[2].lstrip("\n")
    return reasoning, text.rpartition("</think>")[2].lstrip("\n")


def _last_query(messages: list[Message]) -> int:
    """Place of the last user message that isn't a wrapped tool result."""
    for at in range(len(messages) - 1, -1, -1):
        text = messages[at].content
        wrapped = text.startswith("<tool_response>") and text.endswith("</tool_response>")
        if messages[at].role == "user" and not wrapped:
            return at
    return len(messages) - 1
