"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's protocol, streamed or not.

A `max_tokens` beyond the context is no error here: the answer then may end with `model_context_window_exceeded`, as
with Anthropic's current models. `input_tokens` leaves out what was read from the prefix cache.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from forebay.api.anthropic_answer import content_of
from forebay.api.anthropic_events import MALFORMED, MessageEvents, message_of, shown, stop_reason
from forebay.api.anthropic_prompt import ask_of, cache_controls
from forebay.api.anthropic_types import UNSUPPORTED, CountTokensRequest, MessagesRequest, PromptFields, ThinkingEnabled
from forebay.api.asking import Prepared
from forebay.api.cache import retention_for, retention_of
from forebay.api.errors import FaultError
from forebay.api.generation import Delta, Generation
from forebay.api.openai_types import reject_unsupported
from forebay.api.reading import EndReason
from forebay.api.replies import ERRORS, json_response
from forebay.api.request_id import new_id
from forebay.api.sampling import Sampling, priority_of, seed_of, stop_strings
from forebay.api.service import Service, identity_of
from forebay.core.errors import InvalidRequestError
from forebay.core.request import SamplingParams


def _retention(body: MessagesRequest, classes: Mapping[str, float]) -> str | None:
    """The class that is named, or else the nearest to what `cache_control` asks for."""
    return retention_of(body.cache, classes) or retention_for(cache_controls(body), classes)


def sampling_of(body: MessagesRequest, service: Service) -> Sampling:
    """The sampling that a request asks for."""
    if isinstance(body.thinking, ThinkingEnabled) and body.thinking.budget_tokens >= body.max_tokens:
        text = f"'max_tokens' is {body.max_tokens}; it has to be greater than 'thinking.budget_tokens'."
        raise InvalidRequestError(text, "max_tokens")
    params = SamplingParams(
        max_tokens=1,
        temperature=1.0 if body.temperature is None else float(body.temperature),
        top_p=1.0 if body.top_p is None else max(float(body.top_p), 1e-6),
        top_k=body.top_k or 0,
        seed=seed_of(None),
        stop_token_ids=service.recipe.stop_token_ids,
    )
    stop = stop_strings(body.stop_sequences, service.config, "stop_sequences")
    return Sampling(params, body.max_tokens, "max_tokens", clamp=True, stop=stop)


class _Answer:
    """One request's answer, as one message or as a stream."""

    def __init__(self, body: MessagesRequest, service: Service) -> None:
        self.id = new_id("msg_")
        self._body = body
        self._model = service.names[0]
        self._show_thinking = getattr(body.thinking, "display", None) != "omitted"

    def events(self, generation: Generation) -> MessageEvents:
        """The writer of its stream."""
        return MessageEvents(self.id, self._model, generation, self._body.max_tokens, show_thinking=self._show_thinking)

    def message(self, generation: Generation, delta: Delta) -> Response:
        """All of it. Raises FaultError for an answer that can't be shown as a success."""
        wanted = self._body.max_tokens
        delta = shown(delta, wanted)
        if delta.finish is not None and delta.finish.reason is EndReason.ERROR:
            raise FaultError(MALFORMED.kind, MALFORMED.message)
        content = content_of(delta.events, show_thinking=self._show_thinking)
        message = message_of(self.id, self._model, generation, content, wanted)
        if delta.finish is not None:
            message |= stop_reason(delta.finish, generation, wanted)
        return json_response(message)


def anthropic_routes(service: Service) -> APIRouter:
    """The routes of Anthropic's protocol."""
    routes = APIRouter(tags=["Anthropic"])

    async def prepare(body: PromptFields, request: Request) -> Prepared:
        service.check_model(body.model)
        reject_unsupported(body, UNSUPPORTED)
        service.check_messages(len(body.messages))
        return await service.prepare(ask_of(body, service.recipe), identity_of(request))

    @routes.post("/v1/messages", responses=ERRORS, response_model=None)
    async def create_message(body: MessagesRequest, request: Request) -> Response:
        """Answer a conversation; when its last message is the assistant's, continue that."""
        identity = identity_of(request)
        sampling = sampling_of(body, service)
        prompt = await prepare(body, request)
        tier = "default" if body.service_tier == "standard_only" else None
        answer = _Answer(body, service)
        generation = service.generation(
            answer.id,
            prompt,
            sampling,
            priority_of(body.priority, tier, identity),
            identity,
            prompt_param="messages",
            retention=_retention(body, service.router.model.retention_classes),
        )
        if body.stream:
            return service.stream([generation], answer.events(generation))
        return answer.message(generation, (await service.collect(request, [generation]))[0])

    @routes.post("/v1/messages/count_tokens", responses=ERRORS, response_model=None)
    async def count_tokens(body: CountTokensRequest, request: Request) -> Response:
        """Tokens of the prompt that the same fields would make in /v1/messages."""
        return json_response({"input_tokens": len((await prepare(body, request)).ids)})

    return routes
