"""DeepSeek V4 and V4.1: control tokens for turns, reasoning and calls, everything else as plain text.

Their makers publish no Jinja but an encoder, `deepseek-recipe`, which `deepseek_official.py` proves this equal to. It
differs on purpose where that encoder loses or confuses something:

- Typed `<tool_result>`, `Reasoning Effort:` and `## Response Format:` keep their characters but never get the ids of
  the real ones (see `delimiters.py`), so a tool's result can't forge a question. With strict markers they are refused.
- Markers in an assistant's text, its reasoning and its prefill are text.
- Arguments keep their numbers' spelling and repeated keys; calls and results keep their order; a quote in a name is
  escaped.
- V4 takes system messages only before all others: the encoder would move a later one to the front.

Messages of one author that the format joins by an empty line (a user's, V4's system messages) mean the same as one.
Arguments that are no JSON object are shown as one string argument `arguments`, as the encoder does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar, Final

from forebay.core.errors import ConversationError
from forebay.core.grammar import GrammarSpec
from forebay.core.prompt import Origin
from forebay.recipe.conversation import Conversation, KeptAnswer, Message
from forebay.recipe.pieces import Control, Kept, Piece, Text, Words
from forebay.recipe.templates.answers import kept_or
from forebay.recipe.templates.deepseek_words import (
    DELIMITERS,
    RESULT,
    TOOLS_END,
    effort_of_v4,
    effort_of_v41,
    format_of_v4,
    format_of_v41,
    tools_head,
)
from forebay.recipe.templates.dsml_text import Dsml
from forebay.recipe.templates.json_text import respaced, written
from forebay.recipe.vocabulary import Vocabulary

_GAP: Final = "\n\n"
_MARK: Final = "\uff5cDSML\uff5c"


@dataclass(frozen=True, slots=True)
class _Tokens:
    """What both versions have."""

    bos: int
    eos: int
    user: int
    assistant: int
    think: int
    think_end: int

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> _Tokens:
        names = ("begin\u2581of\u2581sentence", "end\u2581of\u2581sentence", "User", "Assistant")
        return cls(*map(vocabulary.control_id, (*map(_token, names), "<think>", "</think>")))


@dataclass(frozen=True, slots=True)
class DeepSeekV4:
    """V4."""

    tokens: _Tokens
    dsml: Dsml
    name: ClassVar[str] = "deepseek-v4"
    knows_thinking: ClassVar[bool] = True
    """It reasons unless told not to."""
    delimiters: ClassVar[tuple[str, ...]] = DELIMITERS

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> DeepSeekV4:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        vocabulary.control_id(_token("latest_reminder"))  # V3.2, whose format is another, has no such token
        dsml = Dsml(vocabulary.control_id(_MARK), "tool_calls", "invoke", "parameter", "")
        return cls(_Tokens.of(vocabulary), dsml)

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation, and the head of the assistant's turn; with `continue_final` its last message stays open.

        Raises ConversationError for a system message that the format has no place for.
        """
        thinking = conversation.thinking is not False
        messages = conversation.messages
        yield Control(self.tokens.bos)
        first = self._opening_messages(messages)
        yield from self._opening(conversation, messages[:first], thinking)
        calls: list[str] = []
        for at in range(first, len(messages)):
            message = messages[at]
            if message.role == "assistant":
                final = continue_final and at == len(messages) - 1
                yield from self._answer(message, thinking, shown=final or bool(conversation.tools), final=final)
                calls = [call.id for call in message.calls]
            elif message.role == "system":
                yield from self._later_system(message, at)
            elif at == first or messages[at - 1].role not in ("user", "tool"):
                yield Control(self.tokens.user)
                yield from _question(messages, at, calls)
        if not continue_final:
            yield Control(self.tokens.assistant)
            yield Control(self.tokens.think if thinking else self.tokens.think_end)

    def _opening_messages(self, messages: Sequence[Message]) -> int:
        """How many messages belong to what stands before the first turn."""
        return next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))

    def _opening(self, conversation: Conversation, systems: Sequence[Message], thinking: bool) -> Iterator[Piece]:
        if thinking:
            yield Words(effort_of_v4(conversation.effort))
        yield from _joined([[Text(message.content, Origin.SYSTEM)] for message in systems if message.content])
        yield from self._requirements(conversation, format_of_v4)

    def _requirements(
        self, conversation: Conversation, format_words: Callable[[GrammarSpec], str | None]
    ) -> Iterator[Piece]:
        """The tools, and what the answer has to look like."""
        if conversation.tools:
            yield Words(_GAP)
            yield from tools_head(self.dsml, self.tokens.think, self.tokens.think_end)
        for tool in conversation.tools:
            shown = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            yield from (Text(written(shown), Origin.SYSTEM), Words("\n"))
        if conversation.tools:
            yield Words(TOOLS_END)
        spec = conversation.answer_format
        words = None if spec is None else format_words(spec)
        if spec is not None and words is not None:
            yield Words(_GAP + words)
            if spec.kind == "json_schema":
                yield Text(respaced(spec.text), Origin.SYSTEM)

    def _later_system(self, message: Message, at: int) -> Iterator[Piece]:
        """A system message between turns."""
        raise ConversationError("This model takes system messages only before all others.", ("messages", at, "role"))

    def _reasons(self, message: Message, thinking: bool) -> bool:
        """Whether a message whose reasoning is shown has a place for it."""
        return thinking or bool(message.reasoning)

    def _answer(self, message: Message, thinking: bool, *, shown: bool, final: bool) -> Iterator[Piece]:
        """An assistant's turn. `shown`: with its reasoning; `final`: it is to be continued."""
        reasons = shown and self._reasons(message, thinking)
        yield from (Control(self.tokens.assistant), Control(self.tokens.think if reasons else self.tokens.think_end))
        kept = message.kept
        if kept is not None and reasons and self.tokens.think_end not in kept.ids[: kept.body]:
            yield from _kept_without_end(kept, self.tokens.think_end)
        else:
            yield from kept_or(message, self._written(message, reasons, final and thinking), reasoning=reasons)
        if not final:
            yield Control(self.tokens.eos)

    def _written(self, message: Message, reasons: bool, may_reason_on: bool) -> Iterator[Piece]:
        """`may_reason_on`: without text behind it, the reasoning itself is continued."""
        if reasons:
            yield Text(message.reasoning, Origin.ASSISTANT)
            if may_reason_on and not message.content:
                return
            yield Control(self.tokens.think_end)
        yield Text(message.content, Origin.ASSISTANT)
        if message.calls:
            yield from self.dsml.calls(message.calls)


@dataclass(frozen=True, slots=True)
class DeepSeekV41(DeepSeekV4):
    """V4.1: system messages have a token of their own and may stand between turns."""

    system: int
    name: ClassVar[str] = "deepseek-v4.1"

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> DeepSeekV41:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        dsml = Dsml(vocabulary.control_id(_MARK), " calls", " invoke", " parameter", "\n")
        return cls(_Tokens.of(vocabulary), dsml, vocabulary.control_id(_token("System")))

    def _opening_messages(self, messages: Sequence[Message]) -> int:
        return int(messages[0].role == "system")

    def _opening(self, conversation: Conversation, systems: Sequence[Message], thinking: bool) -> Iterator[Piece]:
        spec = conversation.answer_format
        stated = spec is not None and format_of_v41(spec) is not None
        if not (systems or thinking or conversation.tools or stated):
            return
        yield Control(self.system)
        if thinking:
            yield Words(effort_of_v41(conversation.effort))
        yield from (Text(message.content, Origin.SYSTEM) for message in systems)
        yield from self._requirements(conversation, format_of_v41)

    def _later_system(self, message: Message, at: int) -> Iterator[Piece]:
        yield from (Control(self.system), Text(message.content, Origin.SYSTEM))

    def _reasons(self, message: Message, thinking: bool) -> bool:
        return thinking


def _token(name: str) -> str:
    return f"<\uff5c{name}\uff5c>"


def _kept_without_end(kept: KeptAnswer, think_end: int) -> Iterator[Piece]:
    """An answer whose reasoning was cut off, or that was made without any."""
    yield from (Kept(tuple(ids)) for ids in [kept.ids[: kept.body]] if ids)
    yield Control(think_end)
    yield from (Kept(tuple(ids)) for ids in [kept.ids[kept.body :]] if ids)


def _question(messages: Sequence[Message], start: int, calls: Sequence[str]) -> Iterator[Piece]:
    """The messages of a user and of tools up to the next of another role; results in the order of their calls."""
    following = (messages[at] for at in range(start, len(messages)))
    turn = list(takewhile(lambda message: message.role in ("user", "tool"), following))
    results = [message for message in turn if message.role == "tool"]
    if all(message.call_id in calls for message in results):
        results.sort(key=lambda message: calls.index(message.call_id))
    ordered = iter(results)
    yield from _joined([_said(next(ordered) if message.role == "tool" else message) for message in turn])


def _said(message: Message) -> list[Piece]:
    text = Text(message.content, message.origin)
    return [Words(RESULT[0]), text, Words(RESULT[1])] if message.role == "tool" else [text]


def _joined(parts: Sequence[Sequence[Piece]]) -> Iterator[Piece]:
    for at, part in enumerate(parts):
        if at:
            yield Words(_GAP)
        yield from part
