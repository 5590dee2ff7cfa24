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

from forebay.api.asking import Path
from forebay.api.responses_items import (
    CallOutputItem,
    CustomCallItem,
    FunctionCallItem,
    Item,
    MessageItem,
    ReasoningItem,
    texts_of,
)
from forebay.api.responses_places import MessagePlaces
from forebay.api.responses_reasoning import reasoning_of
from forebay.recipe import Message, ToolCall

CUSTOM_FIELD: Final = "input"
"""The only argument of a custom tool as the model sees it."""


class Placed(msgspec.Struct, frozen=True):
    """An item, and where it stands in the request, such as `("input", 3)`."""

    item: Item
    place: Path


class Prompt(msgspec.Struct, frozen=True):
    """The messages of a conversation, and where each of them stands in the request."""

    messages: list[Message]
    places: list[MessagePlaces]


class _Answer:
    """One assistant message while its items come."""

    def __init__(self, place: Path) -> None:
        self.places = MessagePlaces(place)
        self._texts: list[str] = []
        self._reasoning = ""
        self._calls: list[ToolCall] = []
        self._last: Item | None = None

    def add(self, item: MessageItem | FunctionCallItem | CustomCallItem | ReasoningItem, place: Path) -> None:
        """The next item."""
        match item:
            case MessageItem():
                self._texts += texts_of(item.content)
                self.places.text(item, place)
            case ReasoningItem():
                # What stood between two pieces of one answer's reasoning was another item, not a line's end.
                border = "\n" if isinstance(self._last, ReasoningItem) else ""
                self._reasoning += border + reasoning_of(item, place)
                self.places.known.setdefault(("reasoning_content",), place)
            case FunctionCallItem():
                self._calls.append(ToolCall(item.call_id, item.name, item.arguments))
                self.places.call(item, place)
            case CustomCallItem():
                arguments = json.dumps({CUSTOM_FIELD: item.input}, ensure_ascii=False)
                self._calls.append(ToolCall(item.call_id, item.name, arguments))
                self.places.call(item, place)
        self._last = item

    def message(self) -> Message:
        """The whole."""
        text = self._texts if len(self._texts) > 1 else "".join(self._texts)
        return Message("assistant", text, self._reasoning, self._calls)


class _Builder:
    """Messages while the items come."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._places: list[MessagePlaces] = []
        self._answer: _Answer | None = None
        self._names: dict[str, str] = {}

    def instruct(self, text: str) -> None:
        """The request's instructions, before all items."""
        self._add(Message("system", [text]), MessagePlaces(("instructions",)))
        self._places[-1].field_text(("instructions",))

    def add(self, placed: Placed) -> None:
        """The next item."""
        item, place = placed.item, placed.place
        match item:
            case FunctionCallItem() | CustomCallItem():
                self._names[item.call_id] = item.name
                self._part_of_answer(item, place)
            case ReasoningItem() | MessageItem(role="assistant"):
                self._part_of_answer(item, place)
            case MessageItem(role="user"):
                self._of_item(Message("user", texts_of(item.content)), item, place)
            case MessageItem():
                self._system(item, place)
            case CallOutputItem():
                name = item.name or self._names.get(item.call_id, "")
                self._of_item(Message("tool", texts_of(item.output), call_id=item.call_id, name=name), item, place)

    def _part_of_answer(
        self, item: MessageItem | FunctionCallItem | CustomCallItem | ReasoningItem, place: Path
    ) -> None:
        if self._answer is None:
            self._answer = _Answer(place)
        self._answer.add(item, place)

    def _of_item(self, message: Message, item: MessageItem | CallOutputItem, place: Path) -> None:
        places = MessagePlaces(place)
        places.text(item, place)
        self._add(message, places)

    def _system(self, item: MessageItem, place: Path) -> None:
        """A system message; at the very beginning there is only one."""
        if [message.role for message in self._messages] != ["system"] or self._answer is not None:
            self._of_item(Message("system", texts_of(item.content)), item, place)
            return
        first = self._messages[0]
        self._messages[0] = Message("system", [*parts_of(first), *texts_of(item.content)])
        self._places[0].text(item, place)

    def _add(self, message: Message, places: MessagePlaces) -> None:
        self._end_answer()
        self._messages.append(message)
        self._places.append(places)

    def _end_answer(self) -> None:
        if self._answer is not None:
            self._messages.append(self._answer.message())
            self._places.append(self._answer.places)
            self._answer = None

    def prompt(self) -> Prompt:
        """All of it."""
        self._end_answer()
        return Prompt(self._messages, self._places)


def parts_of(message: Message) -> list[str]:
    """A message's text, part by part."""
    return [message.text] if isinstance(message.text, str) else message.text


def prompt_of(instructions: str | None, items: Sequence[Placed]) -> Prompt:
    """The messages that instructions and items describe.

    Raises InvalidRequestError for reasoning that can't be read.
    """
    builder = _Builder()
    if instructions:
        builder.instruct(instructions)
    for placed in items:
        builder.add(placed)
    return builder.prompt()
