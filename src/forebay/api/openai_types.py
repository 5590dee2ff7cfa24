"""The requests of OpenAI's protocol that we take, with vLLM's extensions, as pydantic models. Answers are plain dicts.

Unknown fields are refused, as OpenAI does. Fields that exist there but can't be honoured yet are named in `UNSUPPORTED`
with the values that ask for nothing; any other value is a 400, never ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from forebay.api.cache import CacheField
from forebay.api.parts import TextPart
from forebay.api.wire import Items, TokenId, Wire, at_most_keys
from forebay.core.errors import InvalidRequestError

PriorityField = Annotated[
    int | str | None,
    Field(description="0 (served first) to 3, or critical, normal, draft, batch; the key's default when absent."),
]


class StreamOptions(Wire):
    """What a stream carries besides text."""

    include_usage: bool | None = None
    """A last chunk with the usage and no choices."""
    continuous_usage_stats: bool | None = None
    """The usage so far in every chunk (as in vLLM)."""
    include_obfuscation: Literal[False] | None = None


class SamplingFields(Wire):
    """What chat and text completions have in common."""

    model: Annotated[str, Field(max_length=512)]
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    top_k: Annotated[int | None, Field(ge=-1, le=2**31 - 1, description="0 or -1 keeps all tokens.")] = None
    min_p: Annotated[float | None, Field(ge=0, le=1)] = None
    repetition_penalty: Annotated[float | None, Field(gt=0, le=10)] = None
    presence_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    frequency_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    logit_bias: Annotated[dict[str, float] | None, Field(max_length=1024), at_most_keys(1024)] = None
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63)] = None
    stop: str | Items[str] | None = None
    stop_token_ids: Annotated[Items[TokenId] | None, Field(max_length=64)] = None
    min_tokens: Annotated[int | None, Field(ge=0, le=2**31)] = None
    ignore_eos: bool | None = None
    n: Annotated[int | None, Field(ge=1, le=1024)] = None
    prompt_logprobs: Annotated[int | None, Field(ge=0, le=1024)] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str | None, Field(max_length=1024, description="Accepted; changes nothing in the answer.")] = None
    service_tier: Literal["auto", "default", "flex", "batch", "priority"] | None = None
    priority: PriorityField = None
    cache: CacheField | None = None


def _known_role(role: object) -> object:
    """A sentence for the roles that exist but are not taken yet."""
    if role in ("tool", "function"):
        text = "messages of role '{role}' aren't supported by this server yet"
        raise PydanticCustomError("unsupported_role", text, {"role": role})
    return role


class ChatMessage(Wire):
    """One message; content is text or text parts."""

    role: Annotated[Literal["system", "developer", "user", "assistant"], BeforeValidator(_known_role)]
    content: str | Items[TextPart] | None = None
    """Null only exists beside tool calls, which are not taken yet; see `check_messages`."""
    tool_call_id: Any = None
    name: Any = None
    refusal: Any = None
    audio: Any = None
    tool_calls: Any = None
    function_call: Any = None


class ChatRequest(SamplingFields):
    """POST /v1/chat/completions."""

    messages: Annotated[Items[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[int | None, Field(ge=1, le=2**31)] = None
    max_completion_tokens: Annotated[int | None, Field(ge=1, le=2**31)] = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=1024)] = None
    continue_final_message: Annotated[
        bool | None,
        Field(description="Continue the last message, an assistant's, instead of answering it (as in vLLM)."),
    ] = None
    metadata: Annotated[dict[str, str] | None, Field(max_length=16), at_most_keys(16)] = None
    safety_identifier: Annotated[str | None, Field(max_length=1024)] = None
    prompt_cache_key: Annotated[str | None, Field(max_length=1024)] = None
    parallel_tool_calls: bool | None = None
    add_generation_prompt: Any = None
    audio: Any = None
    chat_template: Any = None
    chat_template_kwargs: Any = None
    function_call: Any = None
    functions: Any = None
    modalities: Any = None
    moderation: Any = None
    prediction: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None
    reasoning_effort: Any = None
    response_format: Any = None
    store: Any = None
    tool_choice: Any = None
    tools: Any = None
    verbosity: Any = None
    web_search_options: Any = None


class CompletionRequest(SamplingFields):
    """POST /v1/completions."""

    prompt: str | Items[str] | Items[TokenId] | Items[Items[TokenId]]
    max_tokens: Annotated[int | None, Field(ge=0, le=2**31)] = None
    echo: bool | None = None
    logprobs: Annotated[int | None, Field(ge=0, le=1024)] = None
    best_of: Annotated[int | None, Field(ge=1, le=1024)] = None
    suffix: Any = None
    response_format: Any = None


UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "audio": (),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "function_call": ("none",),
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "name": (),
    "prediction": (),
    "prompt_cache_options": ({},),
    "prompt_cache_retention": ("in_memory",),
    "reasoning_effort": ("none",),
    "refusal": (),
    "response_format": ({"type": "text"},),
    "store": (False,),
    "suffix": ("",),
    "tool_call_id": (),
    "tool_calls": ([],),
    "tool_choice": ("none",),
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Field → values that ask for nothing (null always does)."""


def reject_unsupported(body: BaseModel, fields: dict[str, tuple[Any, ...]] = UNSUPPORTED, prefix: str = "") -> None:
    """Raise InvalidRequestError for the first field that asks for what this server can't do yet."""
    for name in type(body).model_fields:
        value = getattr(body, name)
        if name not in fields or value is None or any(_same(value, harmless) for harmless in fields[name]):
            continue
        harmless = "".join(f" or set it to {value!r}" for value in fields[name])
        raise InvalidRequestError(
            f"'{prefix}{name}' isn't supported by this server yet. Leave it out{harmless}.", prefix + name
        )


def check_messages(messages: Sequence[ChatMessage]) -> None:
    """Raise InvalidRequestError for the first message with a field that can't be honoured, or without content."""
    for index, message in enumerate(messages):
        reject_unsupported(message, prefix=f"messages.{index}.")
        if message.content is None:
            param = f"messages.{index}.content"
            raise InvalidRequestError(f"Missing required parameter: '{param}'.", param)


def _same(value: object, other: object) -> bool:
    """Equal and of one type: 0 is not False here."""
    return type(value) is type(other) and value == other
