"""POST /v1/chat/completions as pydantic models: messages of every role, and the fields of chat alone."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from forebay.api.openai_tools import AnyToolChoice, Name, ResponseFormat, StructuredOutputs, Tools
from forebay.api.openai_types import SamplingFields
from forebay.api.parts import TextPart
from forebay.api.wire import Items, Wire, at_most_keys

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Unserved = Annotated[Any, Field(description="Refused, unless it asks for nothing.")]


def _known_role(role: object) -> object:
    """A sentence for the role that exists but has a successor."""
    if role == "function":
        raise PydanticCustomError("unsupported_role", "messages of role 'function' aren't supported; use 'tool'")
    return role


class CalledFunction(Wire):
    """What was called."""

    name: Name
    arguments: Annotated[str, Field(description="JSON text, as the model wrote it.")]


class MessageToolCall(Wire):
    """A call in an assistant's message."""

    id: Annotated[str, Field(max_length=256)]
    type: Literal["function"] = "function"
    function: CalledFunction
    index: Annotated[int | None, Field(description="Accepted, since some clients keep it from a stream.")] = None


class ChatMessage(Wire):
    """One message; content is text or text parts. Which fields a role has is checked in `openai_chat_prompt`."""

    role: Annotated[Literal["system", "developer", "user", "assistant", "tool"], BeforeValidator(_known_role)]
    content: str | Items[TextPart] | None = None
    name: Annotated[str | None, Field(max_length=256)] = None
    tool_calls: Annotated[Items[MessageToolCall] | None, Field(max_length=1024)] = None
    tool_call_id: Annotated[str | None, Field(max_length=256)] = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """The same under its other name; answers have both."""
    refusal: Any = None
    audio: Any = None
    annotations: Any = None
    function_call: Any = None


class TemplateKwargs(Wire):
    """What a chat template may be told (as in vLLM)."""

    enable_thinking: bool | None = None
    thinking: bool | None = None
    """The same, as DeepSeek's templates call it."""
    reasoning_effort: Effort | None = None


class PromptFields(Wire):
    """What makes up a chat's prompt: chat completions and /tokenize have it in common."""

    tools: Annotated[Tools | None, Field(description="Functions that the model may call.")] = None
    chat_template_kwargs: TemplateKwargs | None = None
    continue_final_message: Annotated[
        bool | None,
        Field(description="Continue the last message, an assistant's, instead of answering it (as in vLLM)."),
    ] = None
    add_generation_prompt: Annotated[
        bool | None, Field(description="False only together with continue_final_message.")
    ] = None


class ChatRequest(PromptFields, SamplingFields):
    """POST /v1/chat/completions."""

    messages: Annotated[Items[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[int | None, Field(ge=1, le=2**31)] = None
    max_completion_tokens: Annotated[int | None, Field(ge=1, le=2**31)] = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=1024)] = None
    tool_choice: Annotated[
        AnyToolChoice | None, Field(description="none (tools are not shown to the model), auto, required, or a tool.")
    ] = None
    parallel_tool_calls: Annotated[
        bool | None, Field(description="Whether an answer may have more than one call; true by default.")
    ] = None
    response_format: Annotated[
        ResponseFormat | None, Field(description="What the text of the answer is held to while it is made.")
    ] = None
    structured_outputs: Annotated[StructuredOutputs | None, Field(description="The same as in vLLM.")] = None
    reasoning_effort: Annotated[
        Effort | None, Field(description="How much to reason; none switches it off where the model has a switch.")
    ] = None
    metadata: Annotated[dict[str, str] | None, Field(max_length=16), at_most_keys(16)] = None
    safety_identifier: Annotated[str | None, Field(max_length=1024)] = None
    prompt_cache_key: Annotated[str | None, Field(max_length=1024)] = None
    audio: Unserved = None
    chat_template: Unserved = None
    function_call: Unserved = None
    functions: Unserved = None
    modalities: Unserved = None
    moderation: Unserved = None
    prediction: Unserved = None
    prompt_cache_options: Unserved = None
    prompt_cache_retention: Unserved = None
    store: Unserved = None
    verbosity: Unserved = None
    web_search_options: Unserved = None
