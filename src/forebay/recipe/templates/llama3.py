"""Llama 3: a header of control tokens with the role's name, two line breaks, the trimmed text, `<|eot_id|>`.

From 3.1 on there is always a system message, with dates, and tools: they stand in the first user message, a call is a
JSON object in an assistant's turn of its own, and its result is a turn of the role `ipython`. Built-in tools
(`brave_search` and so on) are not offered, because no protocol asks for them; the answer parser reads their calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from forebay.core.errors import InvalidRequestError
from forebay.core.prompt import Origin
from forebay.recipe.conversation import Conversation, Message, ToolSpec
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.templates.answers import kept_or
from forebay.recipe.templates.json_text import inner, respaced, tool_object, written
from forebay.recipe.templates.refusals import refuse_tools
from forebay.recipe.vocabulary import Vocabulary

_ENVIRONMENT: Final = "Environment: ipython\n"
_CUTOFF: Final = "Cutting Knowledge Date: December 2023\nToday Date: "
_GUIDANCE: Final = (
    "Given the following functions, please respond with a JSON for a function call with its proper arguments that best "
    'answers the given prompt.\n\nRespond in the format {"name": function name, "parameters": dictionary of argument '
    "name and its value}.Do not use variables.\n\n"
)
_INDENT: Final = 4


@dataclass(frozen=True, slots=True)
class Llama3:
    """Llama 3, and from 3.1 on with dates and tools."""

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
        """The conversation, and the head of the assistant's turn; with `continue_final` its last message stays open.

        Raises InvalidRequestError for tools before 3.1, for more than one call in a message, and for text beside one.
        """
        if self.today is None:
            refuse_tools(conversation)
        messages = conversation.messages
        yield Control(self.begin)
        first = 0
        if self.today is not None:
            first = int(messages[0].role == "system")
            yield from self._system(messages[0] if first else None, self.today(), has_tools=bool(conversation.tools))
        if conversation.tools:
            yield from self._tools(conversation.tools, messages, first)
            first += 1
        last = len(messages) - 1
        for index in range(first, len(messages)):
            yield from self._turn(messages[index], index, is_open=continue_final and index == last)
        if not continue_final:
            yield from self._head("assistant")

    def _system(self, message: Message | None, today: str, *, has_tools: bool) -> Iterator[Piece]:
        yield from self._head("system", f"{_ENVIRONMENT if has_tools else ''}{_CUTOFF}{today}\n\n")
        if message is not None:
            yield _trimmed(message)
        yield Control(self.end)

    def _tools(self, tools: list[ToolSpec], messages: list[Message], index: int) -> Iterator[Piece]:
        """The tools, in front of the first question's text."""
        if index >= len(messages) or messages[index].role != "user":
            raise InvalidRequestError(
                "This model is shown its tools in the first user message, which has to come before any answer.",
                f"messages.{min(index, len(messages) - 1)}.role",
            )
        yield from self._head("user", _GUIDANCE)
        for tool in tools:
            yield from (Text(written(tool_object(tool), _INDENT), Origin.SYSTEM), Words("\n\n"))
        yield from (_trimmed(messages[index]), Control(self.end))

    def _turn(self, message: Message, index: int, *, is_open: bool) -> Iterator[Piece]:
        yield from self._head("ipython" if message.role == "tool" else message.role)
        if message.role == "tool":
            yield Text(written(message.content), message.origin)
        elif message.role == "assistant":
            yield from kept_or(message, _answer(message, index), reasoning=False)
        else:
            yield _trimmed(message)
        if not is_open:
            yield Control(self.end)

    def _head(self, role: str, words: str = "") -> Iterator[Piece]:
        yield from (Control(self.header), Words(role), Control(self.header_end), Words("\n\n" + words))


def _answer(message: Message, index: int) -> Iterator[Piece]:
    if not message.calls:
        yield _trimmed(message)
        return
    if len(message.calls) > 1:
        raise InvalidRequestError(
            f"This model's chat template takes one call in a message, but here are {len(message.calls)}.",
            f"messages.{index}.tool_calls",
        )
    if message.content.strip():
        raise InvalidRequestError(
            "This model's chat template has no place for text in a message that is a call.", f"messages.{index}.content"
        )
    [call] = message.calls
    yield from (Words('{"name": "'), Text(inner(call.name), message.origin), Words('", "parameters": '))
    yield from (Text(respaced(call.arguments), message.origin), Words("}"))


def _trimmed(message: Message) -> Text:
    return Text(message.content.strip(), message.origin)
