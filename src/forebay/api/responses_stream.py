"""The events of a streamed response, numbered, in OpenAI's order, for whoever sends them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from forebay.api.errors import Fault
from forebay.api.generation import Delta, Generation
from forebay.api.responses_answer import ResponseAnswer
from forebay.api.responses_output import Json
from forebay.api.sse import EMPTY_LINES, event


class ResponseEvents:
    """Created, in progress; items and their parts as they grow; completed, incomplete or failed."""

    def __init__(self, answer: ResponseAnswer, at_end: Callable[[], None] = lambda: None) -> None:
        """`at_end` is called once, when the answer's status is final and before its last event is made."""
        self._answer = answer
        self._at_end = at_end
        self._count = 0

    def _encoded(self, events: Iterable[Json]) -> list[bytes]:
        encoded: list[bytes] = []
        for value in events:
            encoded.append(event(value["type"], {**value, "sequence_number": self._count}))
            self._count += 1
        return encoded

    def _state(self, name: str) -> Json:
        return {"type": f"response.{name}", "response": self._answer.object()}

    def first(self) -> list[bytes]:
        """The events before the first delta."""
        queued = self._answer.status == "queued"
        begun = [self._state("created"), *([self._state("queued")] if queued else [])]
        self._answer.status = "in_progress"
        return self._encoded([*begun, self._state("in_progress")])

    def of(self, generation: Generation, delta: Delta) -> list[bytes]:
        """The events of one delta; with the answer's end, its last."""
        events = self._answer.take(generation, delta)
        return self._encoded(events) + (self._last() if self._answer.over else [])

    def _last(self) -> list[bytes]:
        self._at_end()
        status = self._answer.status
        return self._encoded([self._state("incomplete" if status == "cancelled" else status)])

    def failed(self, fault: Fault) -> list[bytes]:
        """The answer can't be completed: an error, and the response as it was left."""
        if self._answer.over:
            return []
        code = fault.kind.value.openai_code
        error = {"type": "error", "code": code, "message": fault.message, "param": fault.param}
        return self._encoded([*self._answer.fail(fault), error]) + self._last()

    def cancelled(self) -> list[bytes]:
        """Nobody wants the rest, if there is one; perhaps not even the first event was made."""
        if self._answer.over:
            return []
        begun = self.first() if self._count == 0 else []
        return [*begun, *self._encoded(self._answer.cancel()), *self._last()]

    def start(self) -> bytes:
        """As `first`."""
        return b"".join(self.first())

    def delta(self, generation: Generation, delta: Delta) -> bytes:
        """As `of`."""
        return b"".join(self.of(generation, delta))

    def end(self) -> bytes:
        """Nothing: the last event has the whole response."""
        return b""

    def failure(self, fault: Fault) -> bytes:
        """As `failed`."""
        return b"".join(self.failed(fault))

    def keepalive(self) -> bytes:
        """Empty lines."""
        return EMPTY_LINES
