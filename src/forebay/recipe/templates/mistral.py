"""Mistral from v3 on: `[INST]` question `[/INST]` answer `</s>`, with tools, their calls and results between control
tokens.

The format changed with each version of Mistral's tokenizer, and published Jinja templates differ from Mistral's own
library in small ways; `mistral_styles.py` lists them all. v1, which has no control tokens, is in `instruct.py`; v2 is
left out, since no model with open weights uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from forebay.core.errors import InvalidRequestError
from forebay.core.prompt import Origin
from forebay.recipe.call_ids import nine_characters
from forebay.recipe.conversation import Conversation, Message, ToolCall, ToolSpec
from forebay.recipe.order import RoleOrder, SystemPlace
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.templates.answers import kept_or
from forebay.recipe.templates.json_text import inner, respaced, tool_object, written
from forebay.recipe.templates.mistral_kept import Spell, with_kept_ids
from forebay.recipe.templates.mistral_styles import (
    CallForm,
    LaterSystem,
    ResultForm,
    Style,
    SystemAt,
    ToolsAt,
    Trim,
)
from forebay.recipe.templates.refusals import check_turns, refuse_tools
from forebay.recipe.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Mistral:
    """One style, bound to a vocabulary."""

    style: Style
    marks: dict[str, Control]
    """The control tokens of the format by their spelling, as far as the vocabulary has them."""
    spell: Spell
    """A token's bytes."""
    opening: Callable[[], Sequence[Piece]]
    """What comes before the first question of a conversation without a system message: nothing, or one of the
    template's own."""

    @property
    def name(self) -> str:
        """The style's name."""
        return self.style.name

    @property
    def order(self) -> RoleOrder:
        """Which roles may follow which."""
        style = self.style
        later = style.later_system is not LaterSystem.NOWHERE
        return RoleOrder(
            SystemPlace.ANYWHERE if later else SystemPlace.FIRST,
            questions_in_a_row=not style.takes_turns,
            question_behind_results=style.question_behind_results or not style.takes_turns,
            tools=style.tools is not ToolsAt.NOWHERE,
        )

    @classmethod
    def of(cls, vocabulary: Vocabulary, style: Style, opening: Callable[[], Sequence[Piece]] = tuple) -> Mistral:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        for mark in style.marks:
            vocabulary.control_id(mark)
        marks = {mark: Control(token) for mark, token in vocabulary.control.items()}
        return cls(style, marks, vocabulary.token_bytes, opening)

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation up to the assistant's turn; with `continue_final` its last message stays open.

        Raises ConversationError when questions and answers don't take turns, InvalidRequestError for what the style has
        no place for.
        """
        self._check(conversation)
        messages = self._named_as_kept(conversation.messages)
        asked = [at for at, message in enumerate(messages) if message.role == "user"]
        tools_at = self._place(asked, last=self.style.tools is ToolsAt.LAST_QUESTION)
        system_at = self._place(asked, last=self.style.system is SystemAt.LAST_QUESTION)
        folded = self._folded(messages)
        yield self.marks["<s>"]
        if messages[0].role != "system":
            yield from self.opening()
        for at, message in enumerate(messages):
            if conversation.tools and at == tools_at:
                yield from self._tools(conversation.tools)
            if message is not folded:
                is_open = continue_final and at == len(messages) - 1
                yield from self._turn(message, folded if at == system_at else None, is_open=is_open)

    def _named_as_kept(self, messages: list[Message]) -> list[Message]:
        begin = self.marks.get("[TOOL_CALLS]")
        if begin is None or self.style.calls is not CallForm.ARRAY:
            return messages
        return with_kept_ids(messages, begin.id, self.spell)

    @staticmethod
    def _place(asked: list[int], *, last: bool) -> int:
        return asked[-1 if last else 0] if asked else -1

    def _folded(self, messages: list[Message]) -> Message | None:
        """The system message that goes into a question."""
        return messages[0] if messages[0].role == "system" and self.style.system is not SystemAt.OWN else None

    def _check(self, conversation: Conversation) -> None:
        if self.style.tools is ToolsAt.NOWHERE:
            refuse_tools(conversation)
        messages = conversation.messages
        first = int(messages[0].role == "system")
        turns = [(at, message) for at, message in enumerate(messages) if at >= first]
        if self.style.takes_turns:
            self._check_turns(turns)
        for at, message in turns:
            if message.calls and message.content and not self.style.text_beside_calls and message.kept is None:
                raise InvalidRequestError(
                    "This model's chat template has no place for text in a message that is a call.",
                    f"messages.{at}.content",
                )

    def _check_turns(self, turns: list[tuple[int, Message]]) -> None:
        if self.style.later_system is LaterSystem.ANYWHERE:
            turns = [(at, message) for at, message in turns if message.role != "system"]
        check_turns(
            turns,
            system=self.style.later_system is LaterSystem.IN_PLACE_OF_ANSWER,
            question_behind_results=self.style.question_behind_results,
        )

    def _turn(self, message: Message, folded: Message | None, *, is_open: bool) -> Iterator[Piece]:
        text: list[Piece] = [Text(message.content, message.origin)]
        if message.role == "system":
            yield from self._block("[SYSTEM_PROMPT]", text, "[/SYSTEM_PROMPT]")
        elif message.role == "user":
            if folded is not None:
                text = [Text(folded.content, folded.origin), Words("\n\n"), *text]
            yield from self._block("[INST]", text, "[/INST]")
        elif message.role == "tool":
            yield from self._result(message)
        else:
            yield from kept_or(message, self._answer(message, is_open=is_open), reasoning=True)
            if not is_open:
                yield self.marks["</s>"]

    def _block(self, begin: str, content: Sequence[Piece], end: str) -> Iterator[Piece]:
        yield from (self.marks[begin], Words(self.style.space), *content, self.marks[end])

    def _tools(self, tools: Sequence[ToolSpec]) -> Iterator[Piece]:
        text = written([tool_object(tool, filled=self.style.fills_tools) for tool in tools])
        yield from self._block("[AVAILABLE_TOOLS]", [Text(text, Origin.SYSTEM)], "[/AVAILABLE_TOOLS]")

    def _answer(self, message: Message, *, is_open: bool) -> Iterator[Piece]:
        if message.reasoning and self.style.reasoning and "[THINK]" in self.marks:
            yield from self._block("[THINK]", [Text(message.reasoning, message.origin)], "[/THINK]")
        text = _trimmed(message.content, self.style.answers)
        if text or not (message.calls or is_open):
            yield from (Words(self.style.space), Text(text, message.origin))
        if message.calls and self.style.calls is CallForm.ARRAY:
            yield from (self.marks["[TOOL_CALLS]"], Words(self.style.space + "["))
            for place, call in enumerate(message.calls):
                yield from _in_array(call, message.origin, first=place == 0)
            yield Words("]")
        else:
            for call in message.calls:
                yield from self._named(call, message.origin)

    def _named(self, call: ToolCall, origin: Origin) -> Iterator[Piece]:
        yield from (self.marks["[TOOL_CALLS]"], Text(call.name, origin))
        if self.style.calls is CallForm.NAMED_WITH_ID:
            yield from (self.marks["[CALL_ID]"], Text(nine_characters(call.id), origin))
        yield from (self.marks["[ARGS]"], Text(respaced(call.arguments), origin))

    def _result(self, message: Message) -> Iterator[Piece]:
        text, origin, call = message.content, message.origin, nine_characters(message.call_id)
        content: list[Piece] = [Text(text, origin)]
        if self.style.results is ResultForm.MARKED:
            content = [Text(call, origin), self.marks["[TOOL_CONTENT]"], Words(self.style.space), *content]
        elif self.style.results is not ResultForm.BARE:
            value = text if self.style.results is ResultForm.RAW_OBJECT else _value(text)
            content = [Words('{"content": '), Text(value, origin), Words(', "call_id": "'), Text(call, origin)]
            content.append(Words('"}'))
        yield from self._block("[TOOL_RESULTS]", content, "[/TOOL_RESULTS]")


def _in_array(call: ToolCall, origin: Origin, *, first: bool) -> Iterator[Piece]:
    yield from (Words('{"name": "' if first else ', {"name": "'), Text(inner(call.name), origin))
    yield from (Words('", "arguments": '), Text(respaced(call.arguments), origin))
    yield from (Words(', "id": "'), Text(nine_characters(call.id), origin), Words('"}'))


def _value(text: str) -> str:
    """A result as a JSON value; one that is no JSON is a string."""
    return respaced(text) if text.strip() else written(text)


def _trimmed(text: str, trim: Trim) -> str:
    if trim is Trim.BOTH:
        return text.strip()
    return text.rstrip(" ") if trim is Trim.SPACES_AT_END else text
