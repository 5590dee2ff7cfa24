"""What requests of OpenAI's protocol have in common, with vLLM's extensions, and text completions; pydantic models.

Unknown fields are refused, as OpenAI does. Fields that exist there but can't be honoured yet are named in `UNSUPPORTED`
with the values that ask for nothing; any other value is a 400, never ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from forebay.api.cache import CacheField
from forebay.api.openai_tools import ResponseFormat, StructuredOutputs
from forebay.api.wire import Items, TokenId, Wire, at_most_keys
from forebay.core.errors import InvalidRequestError
from forebay.core.grammar import GrammarSpec

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
    strict_markers: Annotated[
        bool | None, Field(description="Refuse texts that spell a control token or a delimiter of the template (422).")
    ] = None


class CompletionRequest(SamplingFields):
    """POST /v1/completions."""

    prompt: str | Items[str] | Items[TokenId] | Items[Items[TokenId]]
    max_tokens: Annotated[int | None, Field(ge=0, le=2**31)] = None
    echo: bool | None = None
    logprobs: Annotated[int | None, Field(ge=0, le=1024)] = None
    best_of: Annotated[int | None, Field(ge=1, le=1024)] = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    suffix: Any = None


UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "annotations": ([],),
    "audio": (),
    "chat_template": (),
    "function_call": ("none",),
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "prompt_cache_options": ({},),
    "prompt_cache_retention": ("in_memory",),
    "refusal": ("",),
    "store": (False,),
    "suffix": ("",),
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


def check_grammar_fields(body: SamplingFields, grammar: GrammarSpec | None) -> None:
    """Raise InvalidRequestError for fields that leave an answer with a grammar no way to end."""
    if grammar is None:
        return
    if body.ignore_eos:
        text = "'ignore_eos' isn't possible where the answer's form is given: it has to end where the form does."
        raise InvalidRequestError(text, "ignore_eos")
    if body.min_tokens:
        text = "'min_tokens' isn't possible where the answer's form is given: it has to end where the form does."
        raise InvalidRequestError(text, "min_tokens")


def _same(value: object, other: object) -> bool:
    """Equal and of one type: 0 is not False here."""
    return type(value) is type(other) and value == other
