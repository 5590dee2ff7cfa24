"""The sampling fields of a request → `SamplingParams`, every default resolved and every bound checked."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from forebay.api.auth import Identity, priority_named
from forebay.api.config import ApiConfig
from forebay.api.errors import FaultError, Kind
from forebay.api.openai_types import SamplingFields
from forebay.api.ports import RecipePort
from forebay.core.errors import ContextLengthError, InvalidRequestError
from forebay.core.request import Priority, SamplingParams

MAX_STOP_CHARS = 1024
_TIERS = {
    "auto": Priority.NORMAL_INTERACTIVE,
    "default": Priority.NORMAL_INTERACTIVE,
    "flex": Priority.BACKGROUND_BATCH,
    "batch": Priority.BACKGROUND_BATCH,
    "priority": Priority.CRITICAL_INTERACTIVE,
}


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one request is sampled, but for the prompt's length: `for_prompt` completes it."""

    params: SamplingParams
    """With `max_tokens` still open (1)."""
    max_tokens: int | None
    """As asked for; None takes `default_max_tokens`."""
    max_tokens_param: str
    default_max_tokens: int | None = None
    """None: the rest of the context."""
    clamp: bool = False
    """Cut a `max_tokens` that does not fit instead of refusing it."""
    stop: list[str] = field(default_factory=list)


def room_for_answer(prompt_tokens: int, max_model_len: int, param: str) -> int:
    """Tokens that the context leaves for the answer. Raises ContextLengthError when there are none."""
    if prompt_tokens >= max_model_len:
        raise ContextLengthError(prompt_tokens, max_model_len, param)
    return max_model_len - prompt_tokens


def params_for_prompt(sampling: Sampling, prompt_tokens: int, max_model_len: int, prompt_param: str) -> SamplingParams:
    """Complete the parameters for a prompt of this length. Raises InvalidRequestError when the answer can't fit."""
    room = room_for_answer(prompt_tokens, max_model_len, prompt_param)
    wanted = sampling.max_tokens
    if wanted is None:
        wanted = min(sampling.default_max_tokens or room, room)
    elif wanted > room and not sampling.clamp:
        raise InvalidRequestError(
            f"'{sampling.max_tokens_param}' is {wanted}, but the model's context is {max_model_len} tokens, of which "
            f"the prompt takes {prompt_tokens} and leaves {room}. Ask for at most {room}, or leave it out.",
            sampling.max_tokens_param,
        )
    wanted = max(1, min(wanted, room))
    if sampling.params.min_tokens > wanted:
        text = f"'min_tokens' is {sampling.params.min_tokens}, above the {wanted} tokens that the answer may have."
        raise InvalidRequestError(text, "min_tokens")
    return _with_max_tokens(sampling.params, wanted)


def _with_max_tokens(params: SamplingParams, max_tokens: int) -> SamplingParams:
    values = {name: getattr(params, name) for name in params.__struct_fields__}
    return SamplingParams(**(values | {"max_tokens": max_tokens}))


def openai_sampling(
    body: SamplingFields,
    config: ApiConfig,
    recipe: RecipePort,
    *,
    max_tokens: int | None,
    max_tokens_param: str,
    logprobs: int | None,
    prompt_logprobs: int | None,
    default_max_tokens: int | None = None,
) -> Sampling:
    """From the fields that chat and text completions share."""
    client_stops = checked_ids(body.stop_token_ids or [], recipe.vocab_size, "stop_token_ids")
    own_stops = () if body.ignore_eos else recipe.stop_token_ids
    params = SamplingParams(
        max_tokens=1,
        min_tokens=body.min_tokens or 0,
        temperature=_given(body.temperature, 1.0),
        # Zero mass still keeps the most likely token.
        top_p=max(_given(body.top_p, 1.0), 1e-6),
        top_k=max(body.top_k or 0, 0),
        min_p=_given(body.min_p, 0.0),
        repetition_penalty=_given(body.repetition_penalty, 1.0),
        presence_penalty=_given(body.presence_penalty, 0.0),
        frequency_penalty=_given(body.frequency_penalty, 0.0),
        logit_bias=_logit_bias(body.logit_bias or {}, recipe.vocab_size),
        seed=seed_of(body.seed),
        stop_token_ids=tuple(dict.fromkeys((*own_stops, *client_stops))),
        n=_at_most(body.n, config.max_choices, "n") or 1,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
    )
    stop = stop_strings(body.stop, config, "stop")
    return Sampling(params, max_tokens, max_tokens_param, default_max_tokens, stop=stop)


def at_most_logprobs(value: int | None, config: ApiConfig, param: str) -> int | None:
    """A number of alternatives within the configured bound."""
    return _at_most(value, config.max_logprobs, param)


def _at_most(value: int | None, bound: int, param: str) -> int | None:
    if value is not None and value > bound:
        raise InvalidRequestError(f"'{param}' is {value}; this server allows at most {bound}.", param)
    return value


def _given(value: float | None, default: float) -> float:
    return default if value is None else float(value)


def seed_of(seed: int | None) -> int:
    """The client's seed as a number of 63 bits, or a random one."""
    return secrets.randbits(63) if seed is None else seed % 2**63


def checked_ids(ids: Sequence[int], vocab_size: int, param: str) -> Sequence[int]:
    """The ids, all within the vocabulary. Raises InvalidRequestError that names the first which is not."""
    wrong = next((i for i in ids if not 0 <= i < vocab_size), None)
    if wrong is not None:
        text = f"'{param}' has the token id {wrong}; this model's ids are 0 to {vocab_size - 1}."
        raise InvalidRequestError(text, param)
    return ids


def _logit_bias(bias: dict[str, float], vocab_size: int) -> dict[int, float]:
    if not all(key.isascii() and key.isdigit() and len(key) <= 10 for key in bias):
        raise InvalidRequestError("The keys of 'logit_bias' must be token ids, such as \"42\".", "logit_bias")
    if not all(-100 <= value <= 100 for value in bias.values()):
        raise InvalidRequestError("The values of 'logit_bias' must be between -100 and 100.", "logit_bias")
    result = {int(key): float(value) for key, value in bias.items()}
    checked_ids(list(result), vocab_size, "logit_bias")
    return result


def stop_strings(stop: str | list[str] | None, config: ApiConfig, param: str) -> list[str]:
    """The stop strings, bounded in number and length, none empty."""
    strings = [stop] if isinstance(stop, str) else list(stop or [])
    if len(strings) > config.max_stop_strings:
        text = f"'{param}' has {len(strings)} strings; this server allows at most {config.max_stop_strings}."
        raise InvalidRequestError(text, param)
    if any(not s or len(s) > MAX_STOP_CHARS for s in strings):
        raise InvalidRequestError(f"Each string of '{param}' must have 1 to {MAX_STOP_CHARS} characters.", param)
    return strings


def priority_of(priority: int | str | None, service_tier: str | None, identity: Identity) -> Priority:
    """The request's priority: `priority` before `service_tier` before the key's default, never above the key's ceiling.

    An explicit `priority` above the ceiling is refused (403). A service tier above it is lowered to the ceiling, as a
    tier is a wish; the answer's `service_tier` says which one was granted.
    """
    if priority is not None:
        try:
            wanted = priority_named(priority)
        except ValueError as error:
            raise InvalidRequestError(f"Invalid value for 'priority': {error}.", "priority") from error
        if wanted < identity.ceiling:
            text = f"This API key may not ask for a priority more urgent than {int(identity.ceiling)}."
            raise FaultError(Kind.PERMISSION, text, "priority")
        return wanted
    if service_tier in (None, "auto"):
        return identity.priority
    return max(_TIERS[str(service_tier)], identity.ceiling)


def tier_of(priority: Priority) -> str:
    """OpenAI's word for a priority."""
    if priority is Priority.CRITICAL_INTERACTIVE:
        return "priority"
    return "default" if priority is Priority.NORMAL_INTERACTIVE else "flex"
