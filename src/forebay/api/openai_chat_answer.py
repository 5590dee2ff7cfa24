"""A chat's answer in OpenAI's shape: whole, or as the chunks of a stream. Plain dicts and bytes out.

Reasoning is there under both names that clients know. What was wrong with an answer is in the extension field
`problems` of its choice; a choice whose call can't be read ends with `error`, which no client takes for a success.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from forebay.api.errors import Fault, openai_error
from forebay.api.generation import Delta, Generation
from forebay.api.logprobs import chat_logprobs, prompt_logprobs
from forebay.api.openai_chat_types import ChatRequest
from forebay.api.openai_usage import StreamUsage, granted_tier, usage_of
from forebay.api.reading import calls_of
from forebay.api.request_id import new_id
from forebay.api.service import Service
from forebay.api.sse import EMPTY_LINES, data
from forebay.core.request import Priority
from forebay.recipe.parsers import Event, Problem, ReasoningDelta, TextDelta, ToolCallArguments, ToolCallStart


class ChatAnswer:
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
        """The choice's `logprobs`: of all its tokens, those of reasoning and calls too."""
        return None if delta.logprobs is None else chat_logprobs(self.recipe, delta.logprobs)

    def whole(self, choices: dict[int, Delta], generation: Generation) -> dict[str, Any]:
        """The answer in one piece."""
        result = self.fields("chat.completion")
        result["choices"] = [self._choice(index, delta) for index, delta in choices.items()]
        result["usage"] = usage_of([generation])
        prompt = next((d.prompt_logprobs for d in choices.values() if d.prompt_logprobs is not None), None)
        return result if prompt is None else {**result, "prompt_logprobs": prompt_logprobs(self.recipe, prompt)}

    def _choice(self, index: int, delta: Delta) -> dict[str, Any]:
        return {
            "index": index,
            "message": message_of(delta),
            "logprobs": self.logprobs(delta),
            "finish_reason": None if delta.finish is None else delta.finish.reason.value,
            **problems_of(delta.events),
        }


def message_of(delta: Delta) -> dict[str, Any]:
    """The assistant's message; a call that was cut or can't be read has its arguments as far as they came."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls_of(delta.events)
    ]
    text = delta.text
    message: dict[str, Any] = {"role": "assistant", "content": None if calls and not text else text, "refusal": None}
    if delta.reasoning:
        message |= _reasoning(delta.reasoning)
    return message | {"tool_calls": calls} if calls else message


def problems_of(events: Sequence[Event]) -> dict[str, Any]:
    """The field `problems`; none where all is well."""
    found = [
        {"kind": event.kind.value, "message": event.message, "tool_call": event.index, "text": event.text}
        for event in events
        if isinstance(event, Problem)
    ]
    return {"problems": found} if found else {}


def _reasoning(text: str) -> dict[str, str]:
    return {"reasoning_content": text, "reasoning": text}


def _shape(event: Event) -> dict[str, Any] | None:
    """The `delta` of one event; None for those that have none."""
    match event:
        case TextDelta():
            return {"content": event.text}
        case ReasoningDelta():
            return _reasoning(event.text)
        case ToolCallStart():
            function = {"name": event.name, "arguments": ""}
            call: dict[str, Any] = {"index": event.index, "id": event.id, "type": "function", "function": function}
            return {"tool_calls": [call]}
        case ToolCallArguments():
            return {"tool_calls": [{"index": event.index, "function": {"arguments": event.fragment}}]}
        case _:
            return None


class ChatEvents:
    """The chunks of one streamed answer: for each choice its role, what it says, its finish reason; usage; [DONE]."""

    def __init__(self, answer: ChatAnswer, usage: StreamUsage) -> None:
        self._answer = answer
        self._common = answer.fields("chat.completion.chunk")
        self._usage = usage
        self._problems: dict[int, list[Event]] = {}
        """What was wrong so far, for each choice that has begun."""

    def _chunk(self, index: int, delta: dict[str, Any], logprobs: object = None, **more: Any) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None, **more}
        return data({**self._common, "choices": [choice], **self._usage.in_chunk()})

    def start(self) -> bytes:
        """Nothing: a choice begins with its first delta, which says whether it has content."""
        return b""

    def delta(self, generation: Generation, delta: Delta) -> bytes:
        """A chunk for each event, and one for the finish reason."""
        if delta.empty:
            return b""
        index, out = delta.index, []
        if index not in self._problems:
            self._problems[index] = []
            out.append(self._chunk(index, _role(delta.events)))
        self._problems[index] += [event for event in delta.events if isinstance(event, Problem)]
        shaped = [shape for event in delta.events if (shape := _shape(event)) is not None]
        logprobs = self._answer.logprobs(delta)
        if logprobs is not None and not shaped:
            shaped = [{}]
        for shape in shaped:
            out.append(self._chunk(index, shape, logprobs))
            logprobs = None
        if delta.finish is not None:
            problems = problems_of(self._problems[index])
            out.append(self._chunk(index, {}, finish_reason=delta.finish.reason.value, **problems))
        return b"".join(out)

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


def _role(events: Sequence[Event]) -> dict[str, Any]:
    """A choice's first delta. Content that is null goes on as text where text comes behind reasoning or a call."""
    text = not events or isinstance(events[0], TextDelta)
    return {"role": "assistant", "content": "" if text else None, "refusal": None}
