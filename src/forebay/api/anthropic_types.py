"""The requests of Anthropic's protocol that we take, as pydantic models. Answers are plain dicts.

Unknown fields are refused, as Anthropic does; known ones that can't be honoured are in `UNSUPPORTED`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from forebay.api.anthropic_blocks import Block, CacheMark, PlainText
from forebay.api.anthropic_tools import AnyTool, AnyToolChoice
from forebay.api.cache import CacheField
from forebay.api.openai_types import PriorityField
from forebay.api.wire import Items, Wire, tag_of


class Metadata(Wire):
    """Whom the request is for; changes nothing in the answer."""

    user_id: Annotated[str | None, Field(max_length=1024)] = None


class AnthropicMessage(Wire):
    """One message; content is text or blocks. `system` may stand among the others."""

    role: Literal["user", "assistant", "system"]
    content: str | Items[Block]


Display = Annotated[
    Literal["summarized", "omitted"] | None,
    Field(description="`omitted` leaves the text of thinking blocks empty; it is never summarised here."),
]


class ThinkingEnabled(Wire):
    """Reason first, for at most so many tokens."""

    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=1, le=2**31)]
    display: Display = None


class ThinkingAdaptive(Wire):
    """Reason as the model sees fit."""

    type: Literal["adaptive"]
    display: Display = None


class ThinkingDisabled(Wire):
    """Answer at once."""

    type: Literal["disabled"]


Thinking = Annotated[
    Annotated[ThinkingEnabled, Tag("~enabled")]
    | Annotated[ThinkingAdaptive, Tag("~adaptive")]
    | Annotated[ThinkingDisabled, Tag("~disabled")],
    Discriminator(
        tag_of, custom_error_type="no_thinking", custom_error_message="its 'type' must be enabled, adaptive or disabled"
    ),
]


class OutputFormat(Wire):
    """JSON that follows a schema."""

    type: Literal["json_schema"]
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Wire):
    """What the answer looks like, and how much work goes into it."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


def _edits_nothing(value: object) -> object:
    """Only what leaves the context as it is: no edits, or thinking cleared while all of it is kept."""
    edits = value.get("edits", []) if isinstance(value, dict) and set(value) <= {"edits"} else None
    if not isinstance(edits, list) or not all(_keeps_all(edit) for edit in edits):
        text = "this server edits no context; the one edit it takes is clear_thinking_20251015 with keep 'all'"
        raise PydanticCustomError("unsupported_edit", text)
    return value


def _keeps_all(edit: object) -> bool:
    kind = edit.get("type") if isinstance(edit, dict) else None
    return kind == "clear_thinking_20251015" and isinstance(edit, dict) and edit.get("keep") in ("all", {"type": "all"})


class PromptFields(Wire):
    """What makes up the prompt: all of `count_tokens`, and a part of `messages`."""

    model: Annotated[str, Field(max_length=512)]
    messages: Annotated[
        Items[AnthropicMessage],
        Field(
            min_length=1,
            description="Content is text, or blocks: text, thinking, redacted_thinking, tool_use, tool_result. A last "
            "message of the assistant's is continued. System messages may stand among the others and behind them.",
        ),
    ]
    system: Annotated[
        str | Items[PlainText] | None,
        Field(description="The instructions. Claude Code's billing line at their beginning is left out of the prompt."),
    ] = None
    cache_control: Annotated[
        CacheMark | None, Field(description="Its ttl, and that of any block, asks for the nearest retention class.")
    ] = None
    context_management: Annotated[
        Annotated[dict[str, Any], BeforeValidator(_edits_nothing)] | None,
        Field(description="Only what edits nothing: clear_thinking_20251015 with keep 'all'."),
    ] = None
    output_config: Annotated[
        OutputConfig | None,
        Field(description="A schema that the answer's text follows; and an effort, for models that reason."),
    ] = None
    output_format: Annotated[OutputFormat | None, Field(description="The older place of output_config.format.")] = None
    thinking: Annotated[
        Thinking | None,
        Field(description="Off when absent. With budget_tokens, reasoning that reaches them is ended for the model."),
    ] = None
    tool_choice: Annotated[
        AnyToolChoice | None, Field(description="any and tool hold the answer to calls; none hides the tools.")
    ] = None
    tools: Annotated[
        Items[AnyTool] | None,
        Field(max_length=1024, description="Custom tools only. Calls of a strict one follow its schema."),
    ] = None
    strict_markers: Annotated[
        bool | None, Field(description="Refuse texts that spell a control token or a delimiter of the template (422).")
    ] = None
    mcp_servers: Any = None
    speed: Any = None
    thread: Any = None
    user_profile_id: Any = None
    workspace_id: Any = None


class CountTokensRequest(PromptFields):
    """POST /v1/messages/count_tokens."""


class MessagesRequest(PromptFields):
    """POST /v1/messages."""

    max_tokens: Annotated[
        int, Field(ge=0, le=2**31, description="0 reads the prompt into the prefix cache and says nothing.")
    ]
    temperature: Annotated[float | None, Field(ge=0, le=1)] = None
    top_k: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    stop_sequences: Items[str] | None = None
    stream: bool | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    priority: PriorityField = None
    cache: CacheField | None = None
    container: Any = None
    diagnostics: Any = None
    inference_geo: Any = None


UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "container": (),
    "diagnostics": (),
    "inference_geo": (),
    "mcp_servers": ([],),
    "speed": ("standard",),
    "user_profile_id": (),
    "workspace_id": (),
}
"""Field → values that ask for nothing (null always does)."""
