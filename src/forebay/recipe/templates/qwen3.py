"""Qwen3: ChatML with reasoning and tools. The reasoning of earlier turns is dropped; a switch closes the reasoning
before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forebay.core.prompt import Origin
from forebay.recipe.conversation import Conversation, Message
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.templates.answers import kept_or
from forebay.recipe.templates.hermes import HermesTools, turn_of
from forebay.recipe.templates.spelled import Speller
from forebay.recipe.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Qwen3:
    """The hybrid models, which reason unless told not to."""

    start: int
    end: int
    think: int
    think_end: int
    tools: HermesTools
    name: str = "qwen3"

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Qwen3:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        turn = vocabulary.control_id("<|im_start|>"), vocabulary.control_id("<|im_end|>")
        think = vocabulary.control_id("<think>"), vocabulary.control_id("</think>")
        return cls(*turn, *think, HermesTools(Speller(vocabulary.control)))

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation, and the head of the assistant's turn; with `continue_final` its last message stays open."""
        messages = conversation.messages
        last_query = _last_query(messages)
        if conversation.tools:
            yield from self._system(conversation)
        for at, message in enumerate(messages):
            final = at == len(messages) - 1
            if at == 0 and message.role == "system" and conversation.tools:
                continue
            if message.role == "tool":
                yield from turn_of(messages, at, self.tools, self.start, self.end)
                continue
            yield from self._head(message.role)
            if message.role == "assistant":
                yield from self._answer(message, conversation.thinking, in_turn=at > last_query, final=final)
            else:
                yield Text(message.content, message.origin)
            if final and continue_final:
                return
            yield from (Control(self.end), Words("\n"))
        yield from self._head("assistant")
        if conversation.thinking is False:
            yield from self._reasoning("")

    def _system(self, conversation: Conversation) -> Iterator[Piece]:
        first = conversation.messages[0]
        yield from self._head("system")
        if first.role == "system":
            yield from (Text(first.content, first.origin), Words("\n\n"))
        yield from self.tools.offered(conversation.tools)
        yield from (Control(self.end), Words("\n"))

    def _answer(self, message: Message, thinking: bool | None, *, in_turn: bool, final: bool) -> Iterator[Piece]:
        """An assistant message: `in_turn` when it comes after the last question, where reasoning is kept.

        An answer that is kept and was made with reasoning switched off has behind the prompt's empty reasoning what the
        model wrote, so within the turn that comes first again.
        """
        if message.kept is not None and in_turn and thinking is False:
            yield from self._reasoning("")
        yield from kept_or(message, self._rendered(message, in_turn=in_turn, final=final), reasoning=in_turn)

    def _rendered(self, message: Message, *, in_turn: bool, final: bool) -> Iterator[Piece]:
        reasoning, content = _split(message)
        if in_turn and (final or reasoning):
            yield from self._reasoning(reasoning.strip("\n"))
            shown = content.lstrip("\n")
        else:
            shown = content
        yield Text(shown, message.origin)
        if message.calls:
            yield Words("\n" if content else "")
            yield from self.tools.calls(message.calls)

    def _reasoning(self, text: str) -> Iterator[Piece]:
        yield from (Control(self.think), Words("\n"), Text(text, Origin.ASSISTANT), Words("\n"))
        yield from (Control(self.think_end), Words("\n\n"))

    def _head(self, role: str) -> Iterator[Piece]:
        yield from (Control(self.start), Words(role + "\n"))


def _split(message: Message) -> tuple[str, str]:
    """An assistant's (reasoning, answer). Without reasoning of its own, the text is parted at the closing mark that the
    client wrote as text."""
    text = message.content
    if message.reasoning:
        return message.reasoning, text
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
