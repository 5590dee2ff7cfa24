"""The items of a Responses request → a conversation.

What one answer consisted of (reasoning, text, calls, in items of their own) becomes one assistant message again, so
that the server can recognise it as its own. Instructions and the system or developer messages that follow them become
one system message.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import msgspec

from forebay.api.responses_items import (
    CallOutputItem,
    CustomCallItem,
    FunctionCallItem,
    Item,
    MessageItem,
    ReasoningItem,
    texts_of,
)
from forebay.api.responses_reasoning import reasoning_of
from forebay.recipe import Message, ToolCall
from forebay.recipe.conversation import Role

CUSTOM_FIELD: Final = "input"
"""The only argument of a custom tool as the model sees it."""


class Placed(msgspec.Struct, frozen=True):
    """An item, and where it stands in the request, such as `input.3`."""

    item: Item
    place: str


class Prompt(msgspec.Struct, frozen=True):
    """The messages of a conversation, and where each of them stands in the request."""

    messages: list[Message]
    places: list[str]


class _Joined:
    """Texts of one answer: those with something else of the answer between them go on, neighbours start a new line."""

    def __init__(self) -> None:
        self.text = ""
        self._given = False

    def add(self, text: str, *, neighbour: bool) -> None:
        """One more text."""
        self.text = self.text + "\n" + text if self._given and neighbour else self.text + text
        self._given = True


class _Answer:
    """One assistant message while its items come."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._text, self._reasoning = _Joined(), _Joined()
        self._calls: list[ToolCall] = []
        self._last: type[Item] | None = None

    def add(self, item: MessageItem | FunctionCallItem | CustomCallItem | ReasoningItem, place: str) -> None:
        """The next item."""
        neighbour = self._last is type(item)
        self._last = type(item)
        match item:
            case MessageItem():
                self._text.add("\n".join(texts_of(item.content)), neighbour=neighbour)
            case ReasoningItem():
                self._reasoning.add(reasoning_of(item, place), neighbour=neighbour)
            case FunctionCallItem():
                self._calls.append(ToolCall(item.call_id, item.name, item.arguments))
            case CustomCallItem():
                arguments = json.dumps({CUSTOM_FIELD: item.input}, ensure_ascii=False)
                self._calls.append(ToolCall(item.call_id, item.name, arguments))

    def message(self) -> Message:
        """The whole."""
        return Message("assistant", self._text.text, self._reasoning.text, self._calls)


class _Builder:
    """Messages while the items come."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._places: list[str] = []
        self._answer: _Answer | None = None
        self._names: dict[str, str] = {}

    def add(self, placed: Placed) -> None:
        """The next item."""
        item = placed.item
        match item:
            case FunctionCallItem() | CustomCallItem():
                self._names[item.call_id] = item.name
                self._part_of_answer(item, placed.place)
            case ReasoningItem():
                self._part_of_answer(item, placed.place)
            case MessageItem(role="assistant"):
                self._part_of_answer(item, placed.place)
            case MessageItem():
                role: Role = "user" if item.role == "user" else "system"
                self.message(Message(role, texts_of(item.content)), placed.place)
            case CallOutputItem():
                name = item.name or self._names.get(item.call_id, "")
                self.message(Message("tool", texts_of(item.output), call_id=item.call_id, name=name), placed.place)

    def _part_of_answer(
        self, item: MessageItem | FunctionCallItem | CustomCallItem | ReasoningItem, place: str
    ) -> None:
        if self._answer is None:
            self._answer = _Answer(place)
        self._answer.add(item, place)

    def message(self, message: Message, place: str) -> None:
        """A message of its own; system messages at the very beginning become one."""
        self._end_answer()
        if message.role == "system" and len(self._messages) == 1 and self._messages[0].role == "system":
            self._messages[0] = Message("system", [*_parts(self._messages[0]), *_parts(message)])
            return
        self._messages.append(message)
        self._places.append(place)

    def _end_answer(self) -> None:
        if self._answer is not None:
            self._messages.append(self._answer.message())
            self._places.append(self._answer.place)
            self._answer = None

    def prompt(self) -> Prompt:
        """All of it."""
        self._end_answer()
        return Prompt(self._messages, self._places)


def _parts(message: Message) -> list[str]:
    return [message.text] if isinstance(message.text, str) else message.text


def prompt_of(instructions: str | None, items: Sequence[Placed]) -> Prompt:
    """The messages that instructions and items describe.

    Raises InvalidRequestError for reasoning that can't be read.
    """
    builder = _Builder()
    if instructions:
        builder.message(Message("system", [instructions]), "instructions")
    for placed in items:
        builder.add(placed)
    return builder.prompt()
