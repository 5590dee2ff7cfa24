"""The events of one streamed message, in Anthropic's order, and what both ways of answering say of its end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from forebay.api.anthropic_answer import Blocks, BlockStart, BlockStop, Step
from forebay.api.cache import by_tier
from forebay.api.errors import Fault, Kind, anthropic_error
from forebay.api.generation import Delta, Generation
from forebay.api.reading import EndReason, Finish
from forebay.api.sse import event

MALFORMED: Final = Fault(
    Kind.INTERNAL,
    "The model wrote a tool call whose input is not valid JSON, so there is no answer that could be used. Ask again.",
)
"""Of an answer that can't be shown as a success; no `stop_reason` says so."""


def usage_of(generation: Generation, wanted: int) -> dict[str, Any]:
    """The usage so far, of a request for at most `wanted` tokens; where it wanted none, it got none. Nothing is ever
    billed as written to the cache."""
    said = generation.completion_tokens if wanted else 0
    thought = generation.reasoning_tokens if wanted else 0
    return {
        "input_tokens": generation.prompt_tokens - generation.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": generation.cached_tokens,
        "output_tokens": said,
        "output_tokens_details": {"thinking_tokens": thought},
        **by_tier(generation.cached_tokens, generation.cached_host, generation.cached_disk),
    }


def stop_reason(finish: Finish, generation: Generation, wanted: int) -> dict[str, Any]:
    """`stop_reason` and `stop_sequence` of a finished answer; `wanted` is the request's `max_tokens`."""
    if finish.reason is EndReason.TOOL_CALLS:
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if finish.reason is EndReason.STOP:
        reason = "end_turn" if finish.stop_string is None else "stop_sequence"
    else:
        cut = generation.request.sampling.max_tokens < wanted
        reason = "model_context_window_exceeded" if cut else "max_tokens"
    return {"stop_reason": reason, "stop_sequence": finish.stop_string}


def shown(delta: Delta, wanted: int) -> Delta:
    """What a request for at most `wanted` tokens gets to see of a delta. The engine makes one token at least."""
    if wanted:
        return delta
    return Delta(delta.index, finish=None if delta.finish is None else Finish(EndReason.LENGTH))


def message_of(
    message_id: str, model: str, generation: Generation, content: list[dict[str, Any]], wanted: int
) -> dict[str, Any]:
    """A message, not finished yet."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage_of(generation, wanted), "service_tier": "standard"},
    }


class MessageEvents:
    """The events of one streamed message."""

    def __init__(
        self, message_id: str, model: str, generation: Generation, max_tokens: int, *, show_thinking: bool = True
    ) -> None:
        self._id = message_id
        self._model = model
        self._generation = generation
        self._max_tokens = max_tokens
        self._blocks = Blocks(show_thinking=show_thinking)
        self._index = -1
        self._failed = False

    def start(self) -> bytes:
        """message_start with the usage known so far, and a ping."""
        message = message_of(self._id, self._model, self._generation, [], 0)
        return event("message_start", {"type": "message_start", "message": message}) + self.keepalive()

    def delta(self, generation: Generation, delta: Delta) -> bytes:
        """The blocks' events; at the end message_delta with the final usage, or an error."""
        delta = shown(delta, self._max_tokens)
        out = self._steps(self._blocks.push(delta.events))
        if delta.finish is None:
            return out
        out += self._steps(self._blocks.stop())
        if delta.finish.reason is EndReason.ERROR:
            return out + self.failure(MALFORMED)
        reason = stop_reason(delta.finish, generation, self._max_tokens)
        usage = usage_of(generation, self._max_tokens)
        return out + event("message_delta", {"type": "message_delta", "delta": reason, "usage": usage})

    def _steps(self, steps: Iterable[Step]) -> bytes:
        return b"".join(self._step(step) for step in steps)

    def _step(self, step: Step) -> bytes:
        if isinstance(step, BlockStart):
            self._index += 1
            name, body = "content_block_start", {"content_block": step.block}
        elif isinstance(step, BlockStop):
            name, body = "content_block_stop", {}
        else:
            name, body = "content_block_delta", {"delta": step.delta}
        return event(name, {"type": name, "index": self._index, **body})

    def end(self) -> bytes:
        """message_stop, unless an error was the end."""
        return b"" if self._failed else event("message_stop", {"type": "message_stop"})

    def failure(self, fault: Fault) -> bytes:
        """An error event; clients raise it."""
        self._failed = True
        return event("error", anthropic_error(fault))

    def keepalive(self) -> bytes:
        """A ping."""
        return event("ping", {"type": "ping"})
