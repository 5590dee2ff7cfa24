"""An answer's events → the content blocks of an Anthropic message, as a whole or block by block.

Neighbouring events of one kind are one block. Thinking gets a signature, which names its text and proves nothing: a
client's history is the client's text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from pydantic_core import from_json

from forebay.recipe.parsers import Event, ReasoningDelta, TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart


@dataclass(frozen=True, slots=True)
class BlockStart:
    """A block begins; `block` is its empty beginning."""

    block: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BlockDelta:
    """More of the open block."""

    delta: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BlockStop:
    """The open block is over; `complete` is false for a call that was cut or is malformed."""

    complete: bool = True


Step = BlockStart | BlockDelta | BlockStop


def signature_of(thinking: str) -> str:
    """The signature of a thinking block."""
    digest = hashlib.sha256(b"forebay thinking\0" + thinking.encode("utf-8", "surrogatepass")).digest()
    return base64.b64encode(digest).decode()


class Blocks:
    """Steps of one answer's blocks. With `show_thinking` false the text of thinking is left out, not the block."""

    def __init__(self, *, show_thinking: bool = True) -> None:
        self._show_thinking = show_thinking
        self._open: str | None = None
        self._thinking: list[str] = []

    def push(self, events: Iterable[Event]) -> Iterator[Step]:
        """The steps of more events. What was wrong with a call is no step: see how the answer ended."""
        for event in events:
            match event:
                case ReasoningDelta(text=text):
                    yield from self._think(text)
                case TextDelta(text=text):
                    yield from self._begin("text", {"type": "text", "text": ""})
                    yield BlockDelta({"type": "text_delta", "text": text})
                case ToolCallStart(id=call_id, name=name):
                    yield from self.stop()
                    self._open = "tool_use"
                    yield BlockStart({"type": "tool_use", "id": call_id, "name": name, "input": {}})
                case ToolCallArguments(fragment=fragment):
                    yield BlockDelta({"type": "input_json_delta", "partial_json": fragment})
                case ToolCallEnd():
                    self._open = None
                    yield BlockStop()

    def stop(self) -> Iterator[Step]:
        """End the open block, if there is one."""
        if self._open == "thinking":
            yield BlockDelta({"type": "signature_delta", "signature": signature_of("".join(self._thinking))})
            self._thinking.clear()
        if self._open is not None:
            complete, self._open = self._open != "tool_use", None
            yield BlockStop(complete)

    def _think(self, text: str) -> Iterator[Step]:
        yield from self._begin("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        self._thinking.append(text)
        if self._show_thinking:
            yield BlockDelta({"type": "thinking_delta", "thinking": text})

    def _begin(self, kind: str, block: dict[str, Any]) -> Iterator[Step]:
        if self._open != kind:
            yield from self.stop()
            self._open = kind
            yield BlockStart(block)


@dataclass(slots=True)
class _Whole:
    """One block being put together."""

    block: dict[str, Any]
    texts: dict[str, list[str]] = field(default_factory=dict)
    complete: bool = True

    def add(self, delta: dict[str, Any]) -> None:
        """One more delta, whose text is the value beside its type."""
        [(name, text)] = [(name, text) for name, text in delta.items() if name != "type"]
        self.texts.setdefault(name, []).append(text)

    def finished(self) -> dict[str, Any]:
        """The whole block."""
        joined = {name: "".join(parts) for name, parts in self.texts.items()}
        arguments = joined.pop("partial_json", None)
        block = self.block | joined
        if arguments is None:
            return block
        return block | {"input": msgspec.Raw(arguments.encode()) if self.complete else _readable(arguments)}


def content_of(events: Iterable[Event], *, show_thinking: bool = True) -> list[dict[str, Any]]:
    """The blocks of a whole answer, as a client would put them together from a stream.

    The input of a call is the model's own text, so that numbers and the order of keys stay as they were written; of a
    call that was cut it is what the SDKs make of it, the part that can be read.
    """
    blocks = Blocks(show_thinking=show_thinking)
    wholes: list[_Whole] = []
    for step in [*blocks.push(events), *blocks.stop()]:
        if isinstance(step, BlockStart):
            wholes.append(_Whole(step.block))
        elif isinstance(step, BlockDelta):
            wholes[-1].add(step.delta)
        else:
            wholes[-1].complete = step.complete
    return [whole.finished() for whole in wholes]


def _readable(arguments: str) -> Any:
    """What can be read of a JSON object's beginning."""
    try:
        return from_json(arguments, allow_partial=True)
    except ValueError:
        return {}
