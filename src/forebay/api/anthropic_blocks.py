"""The content blocks of Anthropic's messages that we take, as pydantic models: text, thinking, tool calls, results.

Blocks that exist at Anthropic but need a medium or a server tool that this server lacks are refused with a sentence.
Which role may hold which block is not decided here (`anthropic_conversation`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from forebay.api.parts import CacheControl
from forebay.api.wire import Items, Wire, quoted, tag_of

_KINDS: Final = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result")

ToolUseId = Annotated[str, Field(min_length=1, max_length=256)]
Opaque = Annotated[str, Field(max_length=4 << 20)]
"""What only its maker can read, such as a signature."""


class CacheMark(CacheControl):
    """A hint where a cached prefix ends, and how long it is wanted."""

    scope: Annotated[str | None, Field(max_length=32, description="Accepted; no prefix is shared between tenants.")] = (
        None
    )


class _Block(Wire):
    cache_control: CacheMark | None = None


class TextBlock(_Block):
    """A piece of text."""

    type: Literal["text"]
    text: str
    citations: Annotated[list[Any] | None, Field(max_length=0)] = None


class ThinkingBlock(Wire):
    """Reasoning that an answer showed. The signature is accepted as it is: what a client sends is the client's text,
    whatever it was signed with."""

    type: Literal["thinking"]
    thinking: str
    signature: Opaque = ""


class RedactedThinkingBlock(Wire):
    """Reasoning that only another server can read. It says nothing to this model and takes no part in the prompt."""

    type: Literal["redacted_thinking"]
    data: Opaque


class Caller(Wire):
    """Who made a call: only the model itself."""

    type: Literal["direct"]


class ToolUseBlock(_Block):
    """A call that the model made."""

    type: Literal["tool_use"]
    id: ToolUseId
    name: Annotated[str, Field(min_length=1, max_length=256)]
    input: dict[str, Any]
    caller: Caller | None = None
    toolset_name: None = None


def _refuse_kinds(value: object, known: tuple[str, ...], where: str) -> object:
    """A sentence for the kinds of content that exist but are not taken."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in known:
        text = "content of type '{kind}' isn't supported by this server{where}; it takes {known}"
        raise PydanticCustomError(
            "unsupported_content", text, {"kind": quoted(kind), "where": where, "known": ", ".join(known)}
        )
    return value


def _text_only(value: object) -> object:
    return _refuse_kinds(value, ("text",), " here")


def _known_kind(value: object) -> object:
    return _refuse_kinds(value, _KINDS, "")


PlainText = Annotated[TextBlock, BeforeValidator(_text_only)]
"""A block where only text may stand."""


class ToolResultBlock(_Block):
    """What a call came to."""

    type: Literal["tool_result"]
    tool_use_id: ToolUseId
    content: str | Items[PlainText] | None = None
    is_error: bool | None = None
    toolset_name: None = None


Block = Annotated[
    # The tags' mark keeps them apart from fields in the places that errors name.
    Annotated[TextBlock, Tag("~text")]
    | Annotated[ThinkingBlock, Tag("~thinking")]
    | Annotated[RedactedThinkingBlock, Tag("~redacted_thinking")]
    | Annotated[ToolUseBlock, Tag("~tool_use")]
    | Annotated[ToolResultBlock, Tag("~tool_result")],
    Discriminator(
        tag_of,
        custom_error_type="no_type",
        custom_error_message="a content block needs a 'type', such as 'text'",
    ),
    BeforeValidator(_known_kind),
]
