"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's protocol, streamed or not.

A `max_tokens` beyond the context is no error here: the answer then may end with `model_context_window_exceeded`, as
with Anthropic's current models. `input_tokens` leaves out what was read from the prefix cache.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from forebay.api.anthropic_prompt import cache_controls, prepared, prompt_of
from forebay.api.anthropic_types import UNSUPPORTED, CountTokensRequest, MessagesRequest, PromptFields
from forebay.api.asking import Prepared
from forebay.api.cache import by_tier, retention_for
from forebay.api.errors import Fault, anthropic_error
from forebay.api.generation import Delta, Generation
from forebay.api.openai_types import reject_unsupported
from forebay.api.reading import EndReason, Finish
from forebay.api.replies import ERRORS, json_response
from forebay.api.request_id import new_id
from forebay.api.sampling import Sampling, priority_of, seed_of, stop_strings
from forebay.api.service import Service, identity_of
from forebay.api.sse import event
from forebay.core.request import SamplingParams


def sampling_of(body: MessagesRequest, service: Service) -> Sampling:
    """The sampling that a request asks for."""
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


def usage_of(generation: Generation) -> dict[str, Any]:
    """The usage so far. Nothing is ever billed as written to the cache."""
    return {
        "input_tokens": generation.prompt_tokens - generation.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": generation.cached_tokens,
        "output_tokens": generation.completion_tokens,
        **by_tier(generation.cached_tokens, generation.cached_host, generation.cached_disk),
    }


def stop_reason(finish: Finish, generation: Generation, wanted: int) -> dict[str, Any]:
    """`stop_reason` and `stop_sequence` of a finished answer; `wanted` is the request's `max_tokens`."""
    if finish.reason is EndReason.STOP:
        reason = "end_turn" if finish.stop_string is None else "stop_sequence"
    else:
        cut = generation.request.sampling.max_tokens < wanted
        reason = "model_context_window_exceeded" if cut else "max_tokens"
    return {"stop_reason": reason, "stop_sequence": finish.stop_string}


def message_of(message_id: str, model: str, generation: Generation, content: list[dict[str, Any]]) -> dict[str, Any]:
    """A message, not finished yet."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage_of(generation), "service_tier": "standard"},
    }


class MessageEvents:
    """The events of one streamed message, which has one text block."""

    def __init__(self, message_id: str, model: str, generation: Generation, max_tokens: int) -> None:
        self._id = message_id
        self._model = model
        self._generation = generation
        self._max_tokens = max_tokens

    def start(self) -> bytes:
        """message_start with the usage known so far, content_block_start, ping."""
        message = message_of(self._id, self._model, self._generation, [])
        message["usage"]["output_tokens"] = 0
        block = {"type": "text", "text": ""}
        return (
            event("message_start", {"type": "message_start", "message": message})
            + event("content_block_start", {"type": "content_block_start", "index": 0, "content_block": block})
            + self.keepalive()
        )

    def delta(self, generation: Generation, delta: Delta) -> bytes:
        """A text delta; at the end content_block_stop and message_delta with the final usage."""
        out = b""
        if delta.text:
            text = {"type": "text_delta", "text": delta.text}
            out = event("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": text})
        if delta.finish is not None:
            reason = stop_reason(delta.finish, generation, self._max_tokens)
            out += event("content_block_stop", {"type": "content_block_stop", "index": 0})
            final = {"type": "message_delta", "delta": reason, "usage": usage_of(generation)}
            out += event("message_delta", final)
        return out

    def end(self) -> bytes:
        """message_stop."""
        return event("message_stop", {"type": "message_stop"})

    def failure(self, fault: Fault) -> bytes:
        """An error event; clients raise it."""
        return event("error", anthropic_error(fault))

    def keepalive(self) -> bytes:
        """A ping."""
        return event("ping", {"type": "ping"})


def anthropic_routes(service: Service) -> APIRouter:
    """The routes of Anthropic's protocol."""
    routes = APIRouter(tags=["Anthropic"])

    async def prepare(body: PromptFields, request: Request) -> Prepared:
        service.check_model(body.model)
        reject_unsupported(body, UNSUPPORTED)
        service.check_messages(len(body.messages))
        return await prepared(prompt_of(body), service, identity_of(request))

    @routes.post("/v1/messages", responses=ERRORS, response_model=None)
    async def create_message(body: MessagesRequest, request: Request) -> Response:
        """Answer a conversation; when its last message is the assistant's, continue that."""
        identity = identity_of(request)
        prompt = await prepare(body, request)
        tier = None if body.service_tier is None else "default"
        priority = priority_of(body.priority, tier if body.service_tier == "standard_only" else None, identity)
        message_id, sampling = new_id("msg_"), sampling_of(body, service)
        keep = retention_for(cache_controls(body), service.router.model.retention_classes)
        generation = service.generation(
            message_id,
            prompt,
            sampling,
            priority,
            identity,
            prompt_param="messages",
            retention=keep,
        )
        model = service.names[0]
        if body.stream:
            return service.stream([generation], MessageEvents(message_id, model, generation, body.max_tokens))
        delta = (await service.collect(request, [generation]))[0]
        message = message_of(
            message_id, model, generation, [{"type": "text", "text": delta.text}] if delta.text else []
        )
        if delta.finish is not None:
            message |= stop_reason(delta.finish, generation, body.max_tokens)
        return json_response(message)

    @routes.post("/v1/messages/count_tokens", responses=ERRORS, response_model=None)
    async def count_tokens(body: CountTokensRequest, request: Request) -> Response:
        """Tokens of the prompt that the same fields would make in /v1/messages."""
        return json_response({"input_tokens": len((await prepare(body, request)).ids)})

    return routes
