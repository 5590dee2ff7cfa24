"""ChatML: `<|im_start|>role`, a line break, the text, `<|im_end|>`, a line break; maybe with a default system
message. Tools are as Hermes and Qwen have them; for a model whose own template knows none (SmolLM2's) that is Forebay's
choice, see docs/decisions/0014-recipe-core.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forebay.recipe.conversation import Conversation, Message
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.templates.answers import kept_or
from forebay.recipe.templates.hermes import HermesTools, turn_of
from forebay.recipe.templates.refusals import refuse_tools
from forebay.recipe.templates.spelled import Speller
from forebay.recipe.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class ChatML:
    """One member of the family; `default_system` is put before a conversation that has no system message of its own.

    Reasoning has no place in it, so that of earlier answers is left out.
    """

    start: int
    end: int
    tools: HermesTools | None
    default_system: str | None = None
    name: str = "chatml"

    @classmethod
    def of(cls, vocabulary: Vocabulary, default_system: str | None = None, *, takes_tools: bool = True) -> ChatML:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        start, end = vocabulary.control_id("<|im_start|>"), vocabulary.control_id("<|im_end|>")
        return cls(start, end, HermesTools(Speller(vocabulary.control)) if takes_tools else None, default_system)

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation, and the head of the assistant's turn; with `continue_final` its last message stays open."""
        messages = conversation.messages
        if self.tools is None:
            refuse_tools(conversation)
        first = messages[0] if messages[0].role == "system" else None
        yield from self._system(conversation, first)
        for at, message in enumerate(messages):
            if message is first:
                continue
            if message.role == "tool" and self.tools is not None:
                yield from turn_of(messages, at, self.tools, self.start, self.end)
                continue
            yield from self._head(message.role)
            yield from kept_or(message, self._body(message), reasoning=False)
            if continue_final and at == len(messages) - 1:
                return
            yield from self._end()
        yield from self._head("assistant")

    def _system(self, conversation: Conversation, message: Message | None) -> Iterator[Piece]:
        if message is None and self.default_system is None and not conversation.tools:
            return
        yield from self._head("system")
        if message is not None:
            yield Text(message.content, message.origin)
        elif self.default_system is not None:
            yield Words(self.default_system)
        if conversation.tools and self.tools is not None:
            yield Words("\n\n" if message is not None or self.default_system is not None else "")
            yield from self.tools.offered(conversation.tools)
        yield from self._end()

    def _body(self, message: Message) -> Iterator[Piece]:
        yield Text(message.content, message.origin)
        if message.calls and self.tools is not None:
            yield Words("\n" if message.content else "")
            yield from self.tools.calls(message.calls)

    def _head(self, role: str) -> Iterator[Piece]:
        yield from (Control(self.start), Words(role + "\n"))

    def _end(self) -> Iterator[Piece]:
        yield from (Control(self.end), Words("\n"))
