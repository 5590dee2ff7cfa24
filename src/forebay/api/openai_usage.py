"""Usage and the other small things that OpenAI's two endpoints share. Plain dicts out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay.api.cache import by_tier
from forebay.api.generation import Generation
from forebay.api.openai_types import SamplingFields
from forebay.api.sampling import tier_of
from forebay.core.errors import InvalidRequestError
from forebay.core.request import Priority


def usage_of(generations: Sequence[Generation]) -> dict[str, Any]:
    """`usage` over all prompts of a request, as of now."""
    prompt = sum(g.prompt_tokens for g in generations)
    cached = sum(g.cached_tokens for g in generations)
    host, disk = sum(g.cached_host for g in generations), sum(g.cached_disk for g in generations)
    completion = sum(g.completion_tokens for g in generations)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached, **by_tier(cached, host, disk)},
        "completion_tokens_details": {"reasoning_tokens": sum(g.reasoning_tokens for g in generations)},
    }


def granted_tier(body: SamplingFields, priority: Priority) -> dict[str, str]:
    """`service_tier` as granted, where the request asked for one."""
    return {} if body.service_tier is None else {"service_tier": tier_of(priority)}


def check_stream_fields(body: SamplingFields) -> None:
    """Raise InvalidRequestError for stream options without a stream, and for what a stream can't carry."""
    if body.stream_options is not None and not body.stream:
        raise InvalidRequestError("'stream_options' is only allowed when 'stream' is true.", "stream_options")
    if body.prompt_logprobs is not None and body.stream:
        raise InvalidRequestError("'prompt_logprobs' is only possible when 'stream' is false.", "prompt_logprobs")


class StreamUsage:
    """What a stream says of usage: nothing, at its end, or in every chunk."""

    def __init__(self, body: SamplingFields, generations: Sequence[Generation]) -> None:
        options = body.stream_options
        self._generations = generations
        self.at_end = bool(options and options.include_usage)
        self._always = self.at_end and bool(options and options.continuous_usage_stats)

    def in_chunk(self) -> dict[str, Any]:
        """The `usage` field of a chunk with choices; none where the client did not ask for usage."""
        if not self.at_end:
            return {}
        return {"usage": usage_of(self._generations) if self._always else None}

    def total(self) -> dict[str, Any]:
        """The usage of the whole answer."""
        return usage_of(self._generations)
