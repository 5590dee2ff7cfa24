"""POST /v1/completions: OpenAI's older protocol, text or token ids in, text out; several prompts in one request.

Token ids are taken as they are, control tokens included: they can't come from typed text. Without `max_tokens` an
answer has at most 16 tokens, as in OpenAI's protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from forebay.api.cache import retention_of
from forebay.api.completion_choice import CompletionChoice, PromptLogprobs
from forebay.api.errors import Fault, openai_error
from forebay.api.generation import Delta, Generation
from forebay.api.grammars import check_text
from forebay.api.openai_tools import format_of
from forebay.api.openai_types import CompletionRequest, check_grammar_fields, reject_unsupported
from forebay.api.openai_usage import StreamUsage, check_stream_fields, granted_tier, usage_of
from forebay.api.ports import RecipePort
from forebay.api.replies import ERRORS, json_response
from forebay.api.request_id import new_id
from forebay.api.sampling import Sampling, at_most_logprobs, checked_ids, openai_sampling, priority_of
from forebay.api.service import Service, identity_of
from forebay.api.sse import EMPTY_LINES, data
from forebay.core.errors import InvalidRequestError
from forebay.core.request import Priority
from forebay.recipe.markers import refused

_DEFAULT_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class PromptIds:
    """One prompt of a request."""

    ids: list[int]
    text: str | None
    """As it was sent; None when it came as ids."""


async def prompts_of(body: CompletionRequest, service: Service) -> list[PromptIds]:
    """The prompts of a request. Raises InvalidRequestError for empty ones, too many, or ids beyond the vocabulary."""
    given = body.prompt
    one = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
    prompts: list[Any] = [given] if one else list(given)
    if not prompts or len(prompts) > service.config.max_prompts:
        text = f"'prompt' has {len(prompts)} prompts; send 1 to {service.config.max_prompts}."
        raise InvalidRequestError(text, "prompt")
    return [await _prompt(prompt, service) for prompt in prompts]


async def _prompt(prompt: str | list[int], service: Service) -> PromptIds:
    if isinstance(prompt, str):
        result = PromptIds(await service.encode_text(prompt), prompt)
    else:
        result = PromptIds(list(checked_ids(prompt, service.recipe.vocab_size, "prompt")), None)
    if not result.ids:
        raise InvalidRequestError("'prompt' is empty; send at least one token.", "prompt")
    return result


def check_completion_fields(body: CompletionRequest) -> None:
    """Raise InvalidRequestError for fields that we can't honour or that contradict each other."""
    reject_unsupported(body)
    check_stream_fields(body)
    if body.best_of is not None and body.best_of != (body.n or 1):
        text = "'best_of' isn't supported, unless it equals 'n'. Ask for more choices with 'n' instead."
        raise InvalidRequestError(text, "best_of")
    if body.max_tokens == 0 and not body.echo:
        raise InvalidRequestError("'max_tokens' may be 0 only when 'echo' is true.", "max_tokens")


def sampling_of(body: CompletionRequest, service: Service) -> Sampling:
    """The sampling that a completion asks for; `echo` with `logprobs` asks for those of the prompt too."""
    logprobs = at_most_logprobs(body.logprobs, service.config, "logprobs")
    asked = at_most_logprobs(body.prompt_logprobs, service.config, "prompt_logprobs")
    echoed = logprobs if body.echo else None
    wanted = [k for k in (asked, echoed) if k is not None]
    return openai_sampling(
        body,
        service.config,
        service.recipe,
        max_tokens=body.max_tokens,
        max_tokens_param="max_tokens",
        logprobs=logprobs,
        prompt_logprobs=max(wanted, default=None),
        default_max_tokens=_DEFAULT_MAX_TOKENS,
    )


def refuse_markers(body: CompletionRequest, recipe: RecipePort) -> None:
    """Raise ConversationError for the first prompt whose text holds a marker. Token ids are taken as they are."""
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    for index, prompt in enumerate(prompts):
        found = recipe.find_marker(prompt) if isinstance(prompt, str) else None
        if found is not None:
            raise refused(("prompt",) if isinstance(body.prompt, str) else ("prompt", index), found)


async def with_grammar(sampling: Sampling, body: CompletionRequest, service: Service) -> Sampling:
    """The sampling with the form that the answer shall have. Raises InvalidRequestError that says what is wrong."""
    grammar, param = format_of(body.response_format, body.structured_outputs)
    check_grammar_fields(body, grammar)
    if grammar is None:
        return sampling
    check_text(grammar.text, param)
    await asyncio.to_thread(service.recipe.check_grammar, grammar, param)
    return replace(sampling, params=msgspec.structs.replace(sampling.params, grammar=grammar))


class _Answer:
    """One answer: its common fields and its choices."""

    def __init__(
        self, body: CompletionRequest, service: Service, priority: Priority, prompts: Sequence[PromptIds]
    ) -> None:
        self.id = new_id("cmpl-")
        self.fields: dict[str, Any] = {"id": self.id, "object": "text_completion", "created": int(time.time())}
        self.fields |= {"model": service.names[0], **granted_tier(body, priority)}
        self._body = body
        self._service = service
        self._prompts = prompts
        self._choices: dict[int, CompletionChoice] = {}
        self._prompt_logprobs: dict[int, PromptLogprobs] = {}

    def generations(self, sampling: Sampling, request: Request, priority: Priority) -> list[Generation]:
        """One for each prompt; their choices are numbered on."""
        n = sampling.params.n
        make, who = self._service.generation, identity_of(request)
        keep = retention_of(self._body.cache, self._service.router.model.retention_classes)
        same: dict[str, Any] = {"prompt_param": "prompt", "retention": keep}
        return [
            make(f"{self.id}-{i}", prompt.ids, sampling, priority, who, first=i * n, **same)
            for i, prompt in enumerate(self._prompts)
        ]

    def _choice(self, index: int, n: int) -> CompletionChoice:
        """The choice of this index; it remembers where its next text begins."""
        if index not in self._choices:
            prompt = self._prompts[index // n]
            text = self._service.recipe.decode(prompt.ids) if self._body.echo and prompt.text is None else prompt.text
            self._choices[index] = CompletionChoice(self._body, self._service.recipe, index, prompt.ids, text or "")
        return self._choices[index]

    def _shared(self, prompt: int, delta: Delta) -> PromptLogprobs:
        """The logprobs of a prompt, which come with the first output of its first choice."""
        if delta.prompt_logprobs is not None:
            self._prompt_logprobs[prompt] = delta.prompt_logprobs
        return self._prompt_logprobs.get(prompt)

    def chunk(self, generation: Generation, delta: Delta) -> dict[str, Any] | None:
        """The choice of one chunk; None when it would say nothing."""
        index, n = generation.first + delta.index, generation.request.sampling.n
        return self._choice(index, n).chunk(delta, self._shared(index // n, delta))

    def whole(self, choices: dict[int, Delta], generations: Sequence[Generation]) -> dict[str, Any]:
        """The answer in one piece; `choices` in the order of their indexes."""
        n = generations[0].request.sampling.n
        shaped = [self._choice(i, n).whole(delta, self._shared(i // n, delta)) for i, delta in choices.items()]
        usage = usage_of(generations)
        if self._body.max_tokens == 0:
            usage |= {"completion_tokens": 0, "total_tokens": usage["prompt_tokens"]}
        return {**self.fields, "choices": shaped, "usage": usage}


class CompletionEvents:
    """The chunks of one streamed answer: text, finish reasons, usage, [DONE]."""

    def __init__(self, answer: _Answer, usage: StreamUsage) -> None:
        self._answer = answer
        self._usage = usage

    def start(self) -> bytes:
        """Nothing comes before the text."""
        return b""

    def delta(self, generation: Generation, delta: Delta) -> bytes:
        """One chunk, unless there is nothing to say."""
        shaped = self._answer.chunk(generation, delta)
        return b"" if shaped is None else data({**self._answer.fields, "choices": [shaped], **self._usage.in_chunk()})

    def end(self) -> bytes:
        """Usage where it was asked for, and the end mark."""
        chunk = {**self._answer.fields, "choices": [], "usage": self._usage.total()}
        return (data(chunk) if self._usage.at_end else b"") + b"data: [DONE]\n\n"

    def failure(self, fault: Fault) -> bytes:
        """An error chunk; clients raise it."""
        return data(openai_error(fault)) + b"data: [DONE]\n\n"

    def keepalive(self) -> bytes:
        """Empty lines."""
        return EMPTY_LINES


def completion_routes(service: Service) -> APIRouter:
    """The route of the completions protocol."""
    routes = APIRouter(tags=["OpenAI"])

    @routes.post("/v1/completions", responses=ERRORS, response_model=None)
    async def create_completion(body: CompletionRequest, request: Request) -> Response:
        """Continue one or several texts."""
        service.check_model(body.model)
        check_completion_fields(body)
        priority = priority_of(body.priority, body.service_tier, identity_of(request))
        sampling = sampling_of(body, service)
        if service.strict_markers(identity_of(request), asked=body.strict_markers):
            refuse_markers(body, service.recipe)
        sampling = await with_grammar(sampling, body, service)
        answer = _Answer(body, service, priority, await prompts_of(body, service))
        generations = answer.generations(sampling, request, priority)
        if body.stream:
            return service.stream(generations, CompletionEvents(answer, StreamUsage(body, generations)))
        choices = await service.collect(request, generations)
        return json_response(answer.whole(choices, generations))

    return routes
