"""Llama 2 and the first Mistral: `[INST]` question `[/INST]` answer, strictly taking turns, without tools.

`[INST]` is plain text here, which a user could type; `delimiters.py` sees to it that a typed one never gives the ids of
a real one. Where a vocabulary has it as a control token, it goes in by id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from forebay.recipe.conversation import Conversation, Message
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.templates.answers import kept_or
from forebay.recipe.templates.refusals import check_turns, refuse_tools
from forebay.recipe.vocabulary import Vocabulary


class SystemPlace(Enum):
    """Where the system message goes."""

    NOWHERE = "nowhere"
    FIRST = "first"
    """Before the first question."""
    BLOCK = "block"
    """Before the first question, within <<SYS>> … <</SYS>>."""


@dataclass(frozen=True, slots=True)
class Style:
    """The small differences within the family: the spaces around the parts, and the system message's place."""

    name: str
    before: str
    """Words before [INST]."""
    ask: tuple[str, str]
    """Words between [INST] and the question, and between it and [/INST]."""
    answer: tuple[str, str]
    """Words before and after the answer."""
    system: SystemPlace
    strips_questions: bool = False
    strips_answers: bool = False
    bos_each_turn: bool = False


STYLES: Final = (
    Style("llama2", "", (" ", " "), (" ", " "), SystemPlace.BLOCK, True, True, True),
    Style("mistral-v1", " ", (" ", " "), (" ", ""), SystemPlace.FIRST),
    Style("mistral-v1", "", (" ", " "), ("", ""), SystemPlace.NOWHERE),
    Style("mistral-v1", "", (" ", " "), (" ", ""), SystemPlace.FIRST),
)


@dataclass(frozen=True, slots=True)
class Instruct:
    """One style, bound to a vocabulary."""

    style: Style
    bos: Control
    eos: Control
    inst: Control | Words
    inst_end: Control | Words

    @property
    def name(self) -> str:
        """The style's name."""
        return self.style.name

    @classmethod
    def of(cls, vocabulary: Vocabulary, style: Style) -> Instruct:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        bos, eos = Control(vocabulary.control_id("<s>")), Control(vocabulary.control_id("</s>"))
        return cls(style, bos, eos, _mark(vocabulary, "[INST]"), _mark(vocabulary, "[/INST]"))

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation up to the assistant's turn; with `continue_final` its last message stays open.

        Raises ConversationError when questions and answers don't take turns, InvalidRequestError for tools.
        """
        refuse_tools(conversation)
        messages = list(conversation.messages)
        system = messages.pop(0) if self._takes_system(messages) else None
        check_turns(enumerate(messages, len(conversation.messages) - len(messages)))
        if not self.style.bos_each_turn:
            yield self.bos
        for at, message in enumerate(messages):
            if message.role == "user":
                yield from self._question(message, system if at == 0 else None)
            else:
                yield from self._answer(message, is_open=continue_final and at == len(messages) - 1)

    def _takes_system(self, messages: list[Message]) -> bool:
        return messages[0].role == "system" and self.style.system is not SystemPlace.NOWHERE

    def _question(self, message: Message, system: Message | None) -> Iterator[Piece]:
        if self.style.bos_each_turn:
            yield self.bos
        yield from (Words(self.style.before), self.inst, Words(self.style.ask[0]))
        text = message.content
        if system is not None:
            yield from self._system_words(system)
            text = text.rstrip() if self.style.strips_questions else text
        elif self.style.strips_questions:
            text = text.strip()
        yield from (Text(text, message.origin), Words(self.style.ask[1]), self.inst_end)

    def _system_words(self, system: Message) -> Iterator[Piece]:
        block = self.style.system is SystemPlace.BLOCK
        if block:
            yield Words("<<SYS>>\n")
        yield Text(system.content, system.origin)
        yield Words("\n<</SYS>>\n\n" if block else "\n\n")

    def _answer(self, message: Message, *, is_open: bool) -> Iterator[Piece]:
        text = message.content.strip() if self.style.strips_answers else message.content
        before, after = self.style.answer
        rendered: list[Piece] = [Words(before), Text(text, message.origin)]
        if is_open:
            yield from kept_or(message, rendered if text else [], reasoning=False)
            return
        yield from kept_or(message, [*rendered, Words(after)], reasoning=False)
        yield self.eos


def _mark(vocabulary: Vocabulary, spelling: str) -> Control | Words:
    token_id = vocabulary.control.get(spelling)
    return Words(spelling) if token_id is None else Control(token_id)
