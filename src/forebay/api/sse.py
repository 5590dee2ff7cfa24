"""Server-sent events: runs generations and sends their deltas as one protocol's events. What an event says is not here.

The answer starts with the first delta, so that a request which is refused gets its HTTP status; or after a time of
silence, so that nothing between client and server closes a long wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forebay.api.config import ApiConfig
from forebay.api.errors import Fault, FaultError, fault_of, log_failure
from forebay.api.generation import Delta, Generation, run_all
from forebay.api.hangup import ClientGoneError, until_hangup
from forebay.api.ports import RouterPort

_QUEUE = 256
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


EMPTY_LINES = b"\n\n"
"""No event by the standard, and for clients of the simplest kind no text either. A comment would say the same, but
`vllm bench serve` strips what it reads from the network and then takes a comment and the next events for one comment.
"""


def data(value: object) -> bytes:
    """One event without a name."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def event(name: str, value: object) -> bytes:
    """One event with a name."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


class EventWriter(Protocol):
    """One protocol's events for one answer; it keeps what it must remember between them."""

    def start(self) -> bytes:
        """What comes before all deltas; called once."""

    def delta(self, generation: Generation, delta: Delta) -> bytes:
        """The events of one delta, possibly none."""

    def end(self) -> bytes:
        """What comes after the last delta."""

    def failure(self, fault: Fault) -> bytes:
        """The last events of an answer that can't be completed."""

    def keepalive(self) -> bytes:
        """What may be sent at any time and means nothing."""


_Item = tuple[Generation, Delta] | Exception | None


class _Channel:
    """Deltas from the generations to the client: at most 256 wait, then the generations do."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(_QUEUE)

    async def feed(self, generations: Sequence[Generation], router: RouterPort, timeout_s: float) -> None:
        """Run the generations; the last item is None, or the error that ended them."""

        async def put(generation: Generation, delta: Delta) -> None:
            await self._queue.put((generation, delta))

        try:
            await run_all(generations, router, put, timeout_s)
        except Exception as error:  # becomes an answer or an event, in the task that sends
            await self._queue.put(error)
        else:
            await self._queue.put(None)

    async def batch(self, timeout_s: float) -> list[_Item]:
        """All items there are, at least one; none when nothing came for `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                items = [await self._queue.get()]
        except TimeoutError:
            return []
        while not self._queue.empty():
            items.append(self._queue.get_nowait())
        return items


@asynccontextmanager
async def _channel(generations: Sequence[Generation], router: RouterPort, timeout_s: float) -> AsyncIterator[_Channel]:
    channel = _Channel()
    async with asyncio.TaskGroup() as group:
        feeder = group.create_task(channel.feed(generations, router, timeout_s))
        yield channel
        feeder.cancel()


class EventStream(Response):
    """The streamed answer to one request."""

    def __init__(
        self, generations: Sequence[Generation], router: RouterPort, writer: EventWriter, config: ApiConfig
    ) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = list(HEADERS)
        self._generations = generations
        self._router = router
        self._writer = writer
        self._config = config
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events. Raises what ended the generations before the first event, when nothing was sent yet, and
        ClientGoneError.
        """
        try:
            error = await until_hangup(receive, self._pump(send))
        except FaultError as stopping:
            error = stopping
        if error is None:
            return
        if isinstance(error, ClientGoneError) or not self._started:
            raise error
        await self._send(send, self._events([error]), more=False)

    async def _pump(self, send: Send) -> Exception | None:
        async with _channel(self._generations, self._router, self._config.request_timeout_s) as channel:
            while True:
                items = await channel.batch(self._config.keepalive_s)
                if items and isinstance(items[0], Exception) and not self._started:
                    return items[0]
                body = self._events(items) if items else self._begin() + self._writer.keepalive()
                last = bool(items) and not isinstance(items[-1], tuple)
                if (body or last) and not await self._send(send, body, more=not last):
                    return ClientGoneError("the client does not read what it asked for")
                if last:
                    return None

    def _begin(self) -> bytes:
        """The protocol's first events, if they were not sent yet."""
        return b"" if self._started else self._writer.start()

    def _events(self, items: list[_Item]) -> bytes:
        parts = [self._begin()]
        for item in items:
            if item is None:
                parts.append(self._writer.end())
            elif isinstance(item, Exception):
                fault = fault_of(item)
                log_failure(item, fault)
                parts.append(self._writer.failure(fault))
            else:
                parts.append(self._writer.delta(*item))
        return b"".join(parts)

    async def _send(self, send: Send, body: bytes, *, more: bool) -> bool:
        """Whether the client took it in time."""
        try:
            async with asyncio.timeout(self._config.stall_s):
                if not self._started:
                    self._started = True
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            return False
        return True
