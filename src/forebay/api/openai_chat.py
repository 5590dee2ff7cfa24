"""POST /v1/chat/completions: OpenAI's chat protocol, streamed or not."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from forebay.api.cache import retention_of
from forebay.api.openai_chat_answer import ChatAnswer, ChatEvents
from forebay.api.openai_chat_prompt import ask_of
from forebay.api.openai_chat_types import ChatRequest
from forebay.api.openai_types import check_grammar_fields, reject_unsupported
from forebay.api.openai_usage import StreamUsage, check_stream_fields
from forebay.api.replies import ERRORS, json_response
from forebay.api.sampling import Sampling, at_most_logprobs, openai_sampling, priority_of
from forebay.api.service import Service, identity_of
from forebay.core.errors import InvalidRequestError


def check_chat_fields(body: ChatRequest) -> None:
    """Raise InvalidRequestError for fields that we can't honour or that contradict each other."""
    reject_unsupported(body)
    check_stream_fields(body)
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequestError("'top_logprobs' is only allowed when 'logprobs' is true.", "top_logprobs")
    if body.max_tokens is not None and body.max_completion_tokens is not None:
        text = "Set 'max_completion_tokens' or its older name 'max_tokens', not both."
        raise InvalidRequestError(text, "max_tokens")


def sampling_of(body: ChatRequest, service: Service) -> Sampling:
    """The sampling that a chat request asks for; without a maximum the answer may fill the context."""
    top = at_most_logprobs(body.top_logprobs, service.config, "top_logprobs")
    older = body.max_completion_tokens is None
    return openai_sampling(
        body,
        service.config,
        service.recipe,
        max_tokens=body.max_tokens if older else body.max_completion_tokens,
        max_tokens_param="max_tokens" if older else "max_completion_tokens",
        logprobs=(top or 0) if body.logprobs else None,
        prompt_logprobs=at_most_logprobs(body.prompt_logprobs, service.config, "prompt_logprobs"),
    )


def chat_routes(service: Service) -> APIRouter:
    """The routes of the chat protocol."""
    routes = APIRouter(tags=["OpenAI"])

    @routes.post("/v1/chat/completions", responses=ERRORS, response_model=None)
    async def create_chat_completion(body: ChatRequest, request: Request) -> Response:
        """Answer a conversation."""
        service.check_model(body.model)
        check_chat_fields(body)
        service.check_messages(len(body.messages))
        identity = identity_of(request)
        priority = priority_of(body.priority, body.service_tier, identity)
        sampling = sampling_of(body, service)
        prepared = await service.prepare(ask_of(body), identity)
        check_grammar_fields(body, prepared.grammar)
        answer = ChatAnswer(body, service, priority)
        keep = retention_of(body.cache, service.router.model.retention_classes)
        generation = service.generation(
            answer.id, prepared, sampling, priority, identity, prompt_param="messages", retention=keep
        )
        if body.stream:
            return service.stream([generation], ChatEvents(answer, StreamUsage(body, [generation])))
        choices = await service.collect(request, [generation])
        return json_response(answer.whole(choices, generation))

    return routes
