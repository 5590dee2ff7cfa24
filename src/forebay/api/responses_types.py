"""The requests of OpenAI's Responses protocol that we take, as pydantic models. Answers are plain dicts.

Unknown fields are refused, as OpenAI does. Fields that exist there but can't be honoured are named in `UNSUPPORTED`
with the values that ask for nothing; any other value is a 400, never ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from forebay.api.cache import CacheField
from forebay.api.openai_tools import MAX_TOOLS, Name
from forebay.api.openai_types import PriorityField
from forebay.api.responses_items import InputItem, NotAsync
from forebay.api.wire import Items, Wire, at_most_keys, quoted

Includable = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]
"""Those of tools that are not here ask for nothing, as there is nothing to include."""


def _known_tool(value: object) -> object:
    """A sentence for the tools that exist at OpenAI but not here."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in ("function", "custom"):
        text = (
            "tools of type '{kind}' aren't supported by this server; leave it out, or declare a tool of type 'function'"
        )
        raise PydanticCustomError("unsupported_tool", text, {"kind": quoted(kind)})
    return value


class FunctionTool(Wire):
    """A function that the client runs."""

    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    """Calls follow the schema without fail; off unless asked for."""
    output_schema: None = None
    async_: NotAsync = None
    defer_loading: Literal[False] | None = None
    allowed_callers: Any = None


class PlainText(Wire):
    """Any text."""

    type: Literal["text"]


class CustomTool(Wire):
    """A tool of the client's whose input is free text; the model sees a function with one string, `input`."""

    type: Literal["custom"]
    name: Name
    description: str | None = None
    format: PlainText | None = None
    async_: NotAsync = None
    defer_loading: Literal[False] | None = None
    allowed_callers: Any = None


def _no_grammar(value: object) -> object:
    kind = value.get("format") if isinstance(value, dict) else None
    if isinstance(kind, dict) and kind.get("type") == "grammar":
        text = "grammars of custom tools aren't supported by this server; use the format 'text', or a function tool"
        raise PydanticCustomError("unsupported_format", text)
    return value


Tool = Annotated[
    FunctionTool | CustomTool, Field(discriminator="type"), BeforeValidator(_no_grammar), BeforeValidator(_known_tool)
]


class NamedTool(Wire):
    """A tool by its name."""

    type: Literal["function", "custom"]
    name: Name


_AllowedTool = Annotated[NamedTool, BeforeValidator(_known_tool)]


class SomeTools(Wire):
    """Only some of the tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[Items[_AllowedTool], Field(min_length=1, max_length=MAX_TOOLS)]


def _known_choice(value: object) -> object:
    return value if isinstance(value, dict) and value.get("type") == "allowed_tools" else _known_tool(value)


ToolChoiceField = Annotated[Literal["none", "auto", "required"] | NamedTool | SomeTools, BeforeValidator(_known_choice)]


class ObjectText(Wire):
    """Any JSON object."""

    type: Literal["json_object"]


class SchemaText(Wire):
    """JSON that follows a schema, without fail (whatever `strict` says)."""

    type: Literal["json_schema"]
    name: Name
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    description: str | None = None
    strict: bool | None = None


class TextField(Wire):
    """What the answer's text has to look like."""

    format: Annotated[PlainText | ObjectText | SchemaText, Field(discriminator="type")] | None = None
    verbosity: Any = None


class ReasoningField(Wire):
    """Whether and how much to reason."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Any = None
    generate_summary: Any = None
    context: Any = None
    mode: Any = None


class ResponseStreamOptions(Wire):
    """What a stream carries besides its events."""

    include_obfuscation: Literal[False] | None = None


class PromptFields(Wire):
    """What makes up the prompt: all of `input_tokens`, and a part of a request for a response."""

    input: str | Items[InputItem]
    instructions: str | None = None
    previous_response_id: Annotated[
        str | None, Field(max_length=128, description="A stored response that the conversation goes on from.")
    ] = None
    tools: Annotated[Items[Tool] | None, Field(max_length=MAX_TOOLS)] = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None
    text: TextField | None = None
    reasoning: ReasoningField | None = None
    truncation: Annotated[
        Literal["auto", "disabled"] | None,
        Field(description="`auto` leaves out the oldest turns of what does not fit; else it is refused."),
    ] = None
    strict_markers: Annotated[
        bool | None, Field(description="Refuse texts that spell a control token or a delimiter of the template (422).")
    ] = None
    conversation: Any = None
    personality: Any = None


class InputTokensRequest(PromptFields):
    """POST /v1/responses/input_tokens."""

    model: Annotated[str | None, Field(max_length=512)] = None


class ResponsesRequest(PromptFields):
    """POST /v1/responses."""

    model: Annotated[str, Field(max_length=512)]
    max_output_tokens: Annotated[int | None, Field(ge=1, le=2**31)] = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=1024)] = None
    seed: Annotated[
        int | None, Field(ge=-(2**63), lt=2**63, description="Repeats an answer; OpenAI's protocol lacks it here.")
    ] = None
    include: Items[Includable] | None = None
    metadata: Annotated[dict[str, str] | None, Field(max_length=16), at_most_keys(16)] = None
    store: Annotated[
        bool | None, Field(description="Whether the response is kept for later requests, for some time; it is.")
    ] = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    background: Annotated[
        bool | None, Field(description="Answer at once, and make the response while nobody waits for it.")
    ] = None
    service_tier: Literal["auto", "default", "flex", "priority", "fast"] | None = None
    priority: PriorityField = None
    cache: CacheField | None = None
    user: Annotated[str | None, Field(max_length=1024)] = None
    safety_identifier: Annotated[str | None, Field(max_length=1024)] = None
    prompt_cache_key: Annotated[str | None, Field(max_length=1024)] = None
    client_metadata: Annotated[dict[str, str] | None, Field(max_length=64), at_most_keys(64)] = None
    """Codex sends it; it changes nothing in the answer."""
    max_tool_calls: Annotated[
        int | None, Field(ge=1, le=2**31, description="Of OpenAI's own tools, of which this server has none.")
    ] = None
    access_programs: Any = None
    background_options: Any = None
    context_management: Any = None
    image: Any = None
    moderation: Any = None
    prompt: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None


UNSUPPORTED: Final[dict[str, tuple[Any, ...]]] = {
    "access_programs": (),
    "background_options": ({},),
    "context_management": ([],),
    "conversation": (),
    "image": (),
    "moderation": (),
    "personality": (),
    "prompt": (),
    "prompt_cache_options": ({},),
    "prompt_cache_retention": ("in_memory",),
}
"""Field → values that ask for nothing (null always does)."""

UNSUPPORTED_REASONING: Final[dict[str, tuple[Any, ...]]] = {
    "summary": ("auto",),
    "generate_summary": ("auto",),
    "context": ("auto",),
    "mode": ("standard",),
}
"""`summary: auto` is what there is: the reasoning itself, as `reasoning_text`."""

UNSUPPORTED_TEXT: Final[dict[str, tuple[Any, ...]]] = {"verbosity": ("medium",)}
