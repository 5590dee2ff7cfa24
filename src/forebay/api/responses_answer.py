"""One response as it grows: the object that clients read, its status and usage, from a request and its deltas.

It sends nothing and stores nothing; see `responses_stream` and `responses_store`.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final

import msgspec

from forebay.api.cache import by_tier
from forebay.api.errors import Fault, Kind
from forebay.api.generation import Delta, Generation
from forebay.api.openai_chat_answer import problems_of
from forebay.api.ports import RecipePort
from forebay.api.reading import EndReason
from forebay.api.request_id import new_id
from forebay.api.responses_logprobs import TextLogprobs
from forebay.api.responses_output import Json, ResponseOutput
from forebay.api.responses_types import CustomTool, FunctionTool, ResponsesRequest
from forebay.api.sampling import tier_of
from forebay.core.errors import InvalidRequestError
from forebay.core.request import Priority

_CODES: Final = {
    Kind.OVERLOADED: "rate_limit_exceeded",
    Kind.INVALID: "invalid_prompt",
    Kind.CONTEXT: "invalid_prompt",
}


def usage_of(generation: Generation) -> Json:
    """`usage` as of now."""
    cached = generation.cached_tokens
    tiers = by_tier(cached, generation.cached_host, generation.cached_disk)
    return {
        "input_tokens": generation.prompt_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0, **tiers},
        "output_tokens": generation.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": generation.reasoning_tokens},
        "total_tokens": generation.prompt_tokens + generation.completion_tokens,
    }


def _tool(tool: FunctionTool | CustomTool) -> Json:
    common = {"type": tool.type, "name": tool.name, "description": tool.description}
    if isinstance(tool, FunctionTool):
        return {**common, "parameters": tool.parameters, "strict": bool(tool.strict)}
    return {**common, "format": {"type": "text"}}


def _text(body: ResponsesRequest) -> Json:
    shape = None if body.text is None else body.text.format
    named = {"type": "text"} if shape is None else shape.model_dump(by_alias=True, exclude_none=True)
    return {"format": named, "verbosity": "medium"}


def _choice(body: ResponsesRequest) -> str | Json:
    choice = body.tool_choice
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    return choice.model_dump(exclude_none=True)


def _asked(body: ResponsesRequest) -> Json:
    """The fields of a response that repeat its request, with the defaults filled in."""
    reasoning = body.reasoning
    return {
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
        "safety_identifier": body.safety_identifier,
        "store": body.store is not False,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": _text(body),
        "tool_choice": _choice(body),
        "tools": [_tool(tool) for tool in body.tools or []],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": body.truncation or "disabled",
        "user": body.user,
    }


def encoded(value: object, param: str) -> msgspec.Raw:
    """A client's own words as JSON, whatever Python made of them: numbers of any size, lone surrogates as escapes.

    Raises InvalidRequestError for what is no JSON, or too deep.
    """
    try:
        return msgspec.Raw(json.dumps(value, allow_nan=False).encode())
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"'{param}' holds something that is not JSON, or too deep.", param) from error


class ResponseAnswer:
    """The response to one request."""

    def __init__(self, body: ResponsesRequest, model: str, priority: Priority, recipe: RecipePort) -> None:
        self.id = new_id("resp_")
        self.background = bool(body.background)
        self.status = "queued" if body.background else "in_progress"
        self.generation: Generation | None = None
        self._logprobs = TextLogprobs(recipe)
        self._head = {"id": self.id, "object": "response", "created_at": int(time.time()), "model": model}
        asked = _asked(body) | {"background": self.background, "service_tier": tier_of(priority)}
        self._asked = {name: encoded(value, name) for name, value in asked.items()}
        custom = {tool.name for tool in body.tools or [] if isinstance(tool, CustomTool)}
        packed = "reasoning.encrypted_content" in (body.include or [])
        self._output = ResponseOutput(custom=custom, packed=packed)
        self._ended: Json = {}

    @property
    def over(self) -> bool:
        """Whether nothing will change any more."""
        return self.status not in ("queued", "in_progress")

    @property
    def output(self) -> list[Json]:
        """The items so far."""
        return self._output.items

    def object(self) -> Json:
        """The response as a client reads it now; `problems` only where the model's answer has some."""
        usage = None if self.generation is None or not self.over else usage_of(self.generation)
        return {
            **self._head,
            "status": self.status,
            "error": None,
            "incomplete_details": None,
            "output": [*self._output.items],
            "usage": usage,
            **self._asked,
            **self._ended,
            **problems_of(self._output.problems),
        }

    def take(self, generation: Generation, delta: Delta) -> list[Json]:
        """The stream's events of one delta; at the answer's end the status is final."""
        self.generation, self.status = generation, "in_progress"
        self._logprobs.push(delta.logprobs or ())
        events: list[Json] = []
        for event in delta.events:
            events += self._output.take(event, self._logprobs.of(event))
        if delta.finish is not None:
            events += self._finish(delta.finish.reason)
        return events

    def _finish(self, reason: EndReason) -> list[Json]:
        if reason is EndReason.LENGTH:
            events = self._output.close("incomplete")
            self._end("incomplete", incomplete_details={"reason": "max_output_tokens"})
        elif reason is EndReason.ERROR:
            events = self._output.close("incomplete")
            what = "; ".join(problem.message for problem in self._output.problems)
            self._end("failed", error={"code": "server_error", "message": f"The model's answer is not valid: {what}"})
        else:
            events = self._output.close("completed")
            self._end("completed", completed_at=int(time.time()))
        return events

    def fail(self, fault: Fault) -> list[Json]:
        """The answer can't be completed."""
        events = self._output.close("incomplete")
        self._end("failed", error={"code": _CODES.get(fault.kind, "server_error"), "message": fault.message})
        return events

    def cancel(self) -> list[Json]:
        """Nobody wants the rest."""
        events = self._output.close("incomplete")
        self._end("cancelled")
        return events

    def _end(self, status: str, **fields: Any) -> None:
        self.status = status
        self._ended = fields
