"""One answer's events → the items of a response, and the stream's events while they grow.

An event here is the dict that a client gets, but for its sequence number. An item is open until the next one begins or
the answer ends: text behind a call is a message of its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final, Protocol

from forebay.api.request_id import new_id
from forebay.api.responses_prompt import CUSTOM_FIELD
from forebay.api.responses_reasoning import pack
from forebay.recipe.parsers import (
    Event,
    Problem,
    ProblemKind,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
)

Json = dict[str, Any]
_BREAKS: Final = frozenset({ProblemKind.INVALID_ARGUMENTS, ProblemKind.TRUNCATED_CALL})
"""Of a call that has started: it can't be run."""


class _Open(Protocol):
    """An item that grows. `where` names it in events."""

    item: Json
    where: Json

    def opened(self) -> list[Json]:
        """Its first events."""

    def more(self, text: str) -> list[Json]:
        """The events of more text."""

    def closed(self) -> list[Json]:
        """Its last events, but for `output_item.done`; `item` is then complete."""


class _Part:
    """An item with one part of text: a message's, or reasoning."""

    def __init__(self, item: Json, part: Json, index: int, name: str) -> None:
        self.item = item
        self.where = {"item_id": item["id"], "output_index": index, "content_index": 0}
        self._part = part
        self._name = name
        self._texts: list[str] = []

    def opened(self) -> list[Json]:
        return [{"type": "response.content_part.added", **self.where, "part": {**self._part}}]

    def more(self, text: str) -> list[Json]:
        self._texts.append(text)
        return [{"type": f"response.{self._name}.delta", **self.where, "delta": text}]

    def closed(self) -> list[Json]:
        text = "".join(self._texts)
        self._part = {**self._part, "text": text}
        self.item = {**self.item, "content": [self._part]}
        return [
            {"type": f"response.{self._name}.done", **self.where, "text": text},
            {"type": "response.content_part.done", **self.where, "part": self._part},
        ]


class _Message(_Part):
    """Text that the user sees, with the log probabilities of its tokens where they were asked for."""

    def __init__(self, index: int) -> None:
        item: Json = {"id": new_id("msg_"), "type": "message", "role": "assistant", "content": []}
        part: Json = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        super().__init__(item, part, index, "output_text")
        self._logprobs: list[Json] = []

    def more_with(self, text: str, logprobs: Sequence[Json]) -> list[Json]:
        self._logprobs += logprobs
        return [{**event, "logprobs": list(logprobs)} for event in self.more(text)]

    def closed(self) -> list[Json]:
        self._part = {**self._part, "logprobs": self._logprobs}
        done, *rest = super().closed()
        return [{**done, "logprobs": self._logprobs}, *rest]


class _Reasoning(_Part):
    """Reasoning; with `packed` also in a form that clients without a place for its text send back."""

    def __init__(self, index: int, *, packed: bool) -> None:
        item: Json = {"id": new_id("rs_"), "type": "reasoning", "summary": [], "content": []}
        item["encrypted_content"] = None
        super().__init__(item, {"type": "reasoning_text", "text": ""}, index, "reasoning_text")
        self._packed = packed

    def closed(self) -> list[Json]:
        events = super().closed()
        if self._packed:
            self.item = {**self.item, "encrypted_content": pack(self._part["text"])}
        return events


class _Call:
    """A call while the model writes it; `field` of its item is what the call is made with."""

    def __init__(self, index: int, start: ToolCallStart, *, prefix: str, kind: str, field: str) -> None:
        self.item = {"id": new_id(prefix), "type": kind, "call_id": start.id, "name": start.name, field: ""}
        self.where = {"item_id": self.item["id"], "output_index": index}
        self._fragments: list[str] = []

    def opened(self) -> list[Json]:
        return []

    def more(self, text: str) -> list[Json]:
        self._fragments.append(text)
        return []


class _Function(_Call):
    """A call of a function, its arguments as the model writes them."""

    def __init__(self, index: int, start: ToolCallStart) -> None:
        super().__init__(index, start, prefix="fc_", kind="function_call", field="arguments")

    def more(self, text: str) -> list[Json]:
        super().more(text)
        return [{"type": "response.function_call_arguments.delta", **self.where, "delta": text}]

    def closed(self) -> list[Json]:
        arguments = "".join(self._fragments)
        self.item = {**self.item, "arguments": arguments}
        done = {"type": "response.function_call_arguments.done", **self.where, "name": self.item["name"]}
        return [{**done, "arguments": arguments}]


class _Custom(_Call):
    """A call of a custom tool. Its input is known when the call is complete, as the model writes it as JSON."""

    def __init__(self, index: int, start: ToolCallStart) -> None:
        super().__init__(index, start, prefix="ctc_", kind="custom_tool_call", field="input")

    def closed(self) -> list[Json]:
        text = _custom_input("".join(self._fragments))
        self.item = {**self.item, "input": text}
        kind = "response.custom_tool_call_input"
        return [
            {"type": f"{kind}.delta", **self.where, "delta": text},
            {"type": f"{kind}.done", **self.where, "input": text},
        ]


def _custom_input(arguments: str) -> str:
    """The text in a custom tool's arguments; the arguments as they are when the model wrote something else."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = value.get(CUSTOM_FIELD) if isinstance(value, dict) else None
    return text if isinstance(text, str) and _is_unicode(text) else arguments


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


class ResponseOutput:
    """The items of one response so far."""

    def __init__(self, *, custom: Collection[str] = (), packed: bool = False) -> None:
        """`custom` are the names of custom tools; `packed` puts reasoning into `encrypted_content` too."""
        self.items: list[Json] = []
        """In order; the last may still grow."""
        self.problems: list[Problem] = []
        self._custom = frozenset(custom)
        self._packed = packed
        self._open: _Open | None = None
        self._broken = False

    def take(self, event: Event, logprobs: Sequence[Json] = ()) -> list[Json]:
        """The stream's events of one event of the answer; `logprobs` are those of a text's tokens."""
        match event:
            case TextDelta():
                return self._text(event.text, logprobs)
            case ReasoningDelta():
                begun = [] if isinstance(self._open, _Reasoning) else self._begin(self._reasoning())
                return [*begun, *self._more(event.text)]
            case ToolCallStart():
                make = _Custom if event.name in self._custom else _Function
                return self._begin(make(self._next_index(), event))
            case ToolCallArguments():
                return self._more(event.fragment)
            case Problem():
                self.problems.append(event)
                self._broken |= event.kind in _BREAKS
                return []
            case _:
                return self.close("completed")

    def _text(self, text: str, logprobs: Sequence[Json]) -> list[Json]:
        begun: list[Json] = []
        message = self._open
        if not isinstance(message, _Message):
            message = _Message(self._next_index())
            begun = self._begin(message)
        return [*begun, *message.more_with(text, logprobs)]

    def _next_index(self) -> int:
        return len(self.items)

    def _reasoning(self) -> _Reasoning:
        return _Reasoning(self._next_index(), packed=self._packed)

    def _more(self, text: str) -> list[Json]:
        return [] if self._open is None else self._open.more(text)

    def _begin(self, new: _Open) -> list[Json]:
        events = self.close("completed")
        self._open = new
        new.item = {**new.item, "status": "in_progress"}
        index = new.where["output_index"]
        self.items.append(new.item)
        added = {"type": "response.output_item.added", "output_index": index, "item": new.item}
        return [*events, added, *new.opened()]

    def close(self, status: str) -> list[Json]:
        """End the open item, if there is one. A call that something is wrong with is incomplete in any case."""
        last, self._open = self._open, None
        if last is None:
            return []
        events = last.closed()
        broken = self._broken and isinstance(last, _Call)
        last.item = {**last.item, "status": "incomplete" if broken else status}
        self._broken = False
        index = last.where["output_index"]
        self.items[index] = last.item
        return [*events, {"type": "response.output_item.done", "output_index": index, "item": last.item}]
