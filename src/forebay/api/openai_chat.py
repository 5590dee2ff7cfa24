"""POST /v1/chat/completions: OpenAI's chat protocol, streamed or not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from forebay.api.asking import Ask
from forebay.api.cache import retention_of
from forebay.api.errors import Fault, openai_error
from forebay.api.generation import Delta, Generation
from forebay.api.logprobs import chat_logprobs, prompt_logprobs
from forebay.api.openai_types import ChatMessage, ChatRequest, check_messages, reject_unsupported
from forebay.api.openai_usage import StreamUsage, check_stream_fields, granted_tier, usage_of
from forebay.api.parts import texts_of
from forebay.api.replies import ERRORS, json_response
from forebay.api.request_id import new_id
from forebay.api.sampling import Sampling, at_most_logprobs, openai_sampling, priority_of
from forebay.api.service import Service, identity_of
from forebay.api.sse import EMPTY_LINES, data
from forebay.core.errors import InvalidRequestError
from forebay.core.request import Priority
from forebay.recipe import Conversation, Message


def conversation_of(messages: Sequence[ChatMessage]) -> Conversation:
    """The messages without OpenAI's shape; `developer` is today's word for `system`."""
    return Conversation(
        [Message("system" if m.role == "developer" else m.role, texts_of(m.content or "")) for m in messages]
    )


def check_chat_fields(body: ChatRequest) -> None:
    """Raise InvalidRequestError for fields that we can't honour or that contradict each other."""
    reject_unsupported(body)
    check_messages(body.messages)
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


class _Answer:
    """The fields that all chunks of one answer, or the whole answer, have in common."""

    def __init__(self, body: ChatRequest, service: Service, priority: Priority) -> None:
        self.id = new_id("chatcmpl-")
        self._common = {"id": self.id, "created": int(time.time()), "model": service.names[0]}
        self._common |= granted_tier(body, priority)
        self.recipe = service.recipe

    def fields(self, kind: str) -> dict[str, Any]:
        """With the `object` of that kind."""
        return {**self._common, "object": kind}

    def logprobs(self, delta: Delta) -> dict[str, Any] | None:
        """The choice's `logprobs`."""
        return None if delta.logprobs is None else chat_logprobs(self.recipe, delta.logprobs)

    def whole(self, choices: dict[int, Delta], generation: Generation) -> dict[str, Any]:
        """The answer in one piece."""
        result = self.fields("chat.completion")
        result["choices"] = [self._choice(index, delta) for index, delta in choices.items()]
        result["usage"] = usage_of([generation])
        prompt = next((d.prompt_logprobs for d in choices.values() if d.prompt_logprobs is not None), None)
        return result if prompt is None else {**result, "prompt_logprobs": prompt_logprobs(self.recipe, prompt)}

    def _choice(self, index: int, delta: Delta) -> dict[str, Any]:
        message = {"role": "assistant", "content": delta.text, "refusal": None}
        return {
            "index": index,
            "message": message,
            "logprobs": self.logprobs(delta),
            "finish_reason": None if delta.finish is None else delta.finish.reason.value,
        }


class ChatEvents:
    """The chunks of one streamed answer: the role of each choice, its text, its finish reason; usage; [DONE]."""

    def __init__(self, answer: _Answer, generation: Generation, usage: StreamUsage) -> None:
        self._answer = answer
        self._common = answer.fields("chat.completion.chunk")
        self._choices = generation.request.sampling.n
        self._usage = usage

    def _chunk(self, index: int, delta: dict[str, Any], finish: str | None, logprobs: object = None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return data({**self._common, "choices": [choice], **self._usage.in_chunk()})

    def start(self) -> bytes:
        """A chunk with the role for each choice."""
        role = {"role": "assistant", "content": "", "refusal": None}
        return b"".join(self._chunk(index, role, None) for index in range(self._choices))

    def delta(self, generation: Generation, delta: Delta) -> bytes:
        """Text, then the finish reason in a chunk of its own."""
        out = b""
        if delta.text or delta.logprobs:
            out = self._chunk(delta.index, {"content": delta.text}, None, self._answer.logprobs(delta))
        if delta.finish is not None:
            out += self._chunk(delta.index, {}, delta.finish.reason.value)
        return out

    def end(self) -> bytes:
        """Usage where it was asked for, and the end mark."""
        usage = data({**self._common, "choices": [], "usage": self._usage.total()}) if self._usage.at_end else b""
        return usage + b"data: [DONE]\n\n"

    def failure(self, fault: Fault) -> bytes:
        """An error chunk; clients raise it."""
        return data(openai_error(fault)) + b"data: [DONE]\n\n"

    def keepalive(self) -> bytes:
        """Empty lines."""
        return EMPTY_LINES


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
        continued = bool(body.continue_final_message)
        prepared = await service.prepare(Ask(conversation_of(body.messages), continue_final=continued), identity)
        answer = _Answer(body, service, priority)
        keep = retention_of(body.cache, service.router.model.retention_classes)
        generation = service.generation(
            answer.id,
            prepared,
            sampling,
            priority,
            identity,
            prompt_param="messages",
            retention=keep,
        )
        if body.stream:
            return service.stream([generation], ChatEvents(answer, generation, StreamUsage(body, [generation])))
        choices = await service.collect(request, [generation])
        return json_response(answer.whole(choices, generation))

    return routes
