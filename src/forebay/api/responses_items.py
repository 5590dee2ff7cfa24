"""The items of a Responses request's `input`, as pydantic models: messages, calls and outputs, reasoning, references.

An item's kind is its `type`; without one it is a message (it has a role) or a reference (it has only an id). Kinds that
exist at OpenAI but need a tool or a medium that this server lacks are refused with a sentence.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from forebay.api.openai_tools import Name
from forebay.api.wire import Items, Wire, quoted

ItemId = Annotated[str | None, Field(max_length=256)]
CallId = Annotated[str, Field(min_length=1, max_length=256)]
NotAsync = Annotated[Literal[False] | None, Field(alias="async")]
Status = Literal["in_progress", "completed", "incomplete"] | None

_TEXT_PARTS: Final = frozenset({"input_text", "output_text", "refusal"})


def _only_text(value: object) -> object:
    """A sentence for the kinds of content that exist but are not taken."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in _TEXT_PARTS:
        message = "content of type '{kind}' isn't supported by this server; send parts of type 'input_text'"
        raise PydanticCustomError("unsupported_content", message, {"kind": quoted(kind)})
    return value


class TextPart(Wire):
    """A piece of text. What an answer's part carries besides its text is taken back, and says nothing to the model."""

    type: Literal["input_text", "output_text"]
    text: str
    annotations: Items[Any] | None = None
    logprobs: Items[Any] | None = None
    prompt_cache_breakpoint: Any = None


class RefusalPart(Wire):
    """An assistant's refusal, which is text of its own."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        """As the model said it."""
        return self.refusal


Part = Annotated[TextPart | RefusalPart, Field(discriminator="type"), BeforeValidator(_only_text)]
Content = str | Items[Part]


def texts_of(content: str | list[TextPart | RefusalPart]) -> list[str]:
    """The texts of a content, part by part."""
    return [content] if isinstance(content, str) else [part.text for part in content]


class MessageItem(Wire):
    """One message, a client's or an assistant's that is sent back."""

    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: ItemId = None
    status: Status = None
    phase: Literal["commentary", "final_answer"] | None = None
    end_turn: bool | None = None


class FunctionCallItem(Wire):
    """A call that the model made."""

    type: Literal["function_call"]
    call_id: CallId
    name: Name
    arguments: str
    id: ItemId = None
    async_: NotAsync = None
    status: Status = None
    namespace: None = None
    caller: Any = None


class CallOutputItem(Wire):
    """What a function, or a custom tool, answered."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: CallId
    output: Content
    id: ItemId = None
    name: Annotated[str | None, Field(max_length=256)] = None
    status: Status = None
    namespace: None = None
    caller: Any = None


class CustomCallItem(Wire):
    """A call of a custom tool, whose input is free text."""

    type: Literal["custom_tool_call"]
    call_id: CallId
    name: Name
    input: str
    id: ItemId = None
    async_: NotAsync = None
    status: Status = None
    namespace: None = None
    caller: Any = None


class SummaryPart(Wire):
    """A piece of a summary, which this server never makes."""

    type: Literal["summary_text"]
    text: str


class ReasoningPart(Wire):
    """A piece of reasoning."""

    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(Wire):
    """Reasoning that is sent back: in the open, or packed by this server in `encrypted_content`."""

    type: Literal["reasoning"]
    id: ItemId = None
    summary: Annotated[Items[SummaryPart], Field(default_factory=list)]
    content: Items[ReasoningPart] | None = None
    encrypted_content: str | None = None
    status: Status = None


class ReferenceItem(Wire):
    """An item of a stored response, by its id."""

    type: Literal["item_reference"] | None = None
    id: Annotated[str, Field(min_length=1, max_length=256)]


_KINDS: Final = {
    "message": "message",
    "function_call": "function_call",
    "function_call_output": "output",
    "custom_tool_call": "custom",
    "custom_tool_call_output": "output",
    "reasoning": "reasoning",
    "item_reference": "reference",
}


def _kind(value: object) -> str:
    """Which model an item has, or is of."""
    fields = value if isinstance(value, dict) else vars(value) if isinstance(value, Wire) else {}
    kind = fields.get("type")
    if kind is None:
        return "reference" if "id" in fields and "role" not in fields else "message"
    return _KINDS.get(kind, "message") if isinstance(kind, str) else "message"


def _known_kind(value: object) -> object:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in _KINDS:
        message = "items of type '{kind}' aren't supported by this server; it takes {known}"
        raise PydanticCustomError("unsupported_item", message, {"kind": quoted(kind), "known": ", ".join(_KINDS)})
    return value


Item = MessageItem | FunctionCallItem | CallOutputItem | CustomCallItem | ReasoningItem | ReferenceItem
InputItem = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[CallOutputItem, Tag("output")]
    | Annotated[CustomCallItem, Tag("custom")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[ReferenceItem, Tag("reference")],
    Discriminator(_kind),
    BeforeValidator(_known_kind),
]
