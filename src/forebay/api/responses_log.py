"""The events of a response that is made in the background, kept so that any number of clients can read them from any
point, while it grows and afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forebay.api.config import ApiConfig
from forebay.api.errors import Fault, FaultError
from forebay.api.hangup import ClientGoneError, until_hangup
from forebay.api.sse import EMPTY_LINES, HEADERS
from forebay.api.sse import event as encoded_event


class EventLog:
    """Encoded events in order; the index is the sequence number. As long as the answer, and counted by the store."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.size = 0
        """Bytes."""
        self.complete = False
        self._changed = asyncio.Event()

    def add(self, events: Iterable[bytes]) -> None:
        """More events."""
        for event in events:
            self.events.append(event)
            self.size += len(event)
        self._wake()

    def finish(self) -> None:
        """There will be no more."""
        self.complete = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def beyond(self, count: int, timeout_s: float) -> list[bytes]:
        """The events behind the first `count`, at least one; none when the log ends there, or after `timeout_s`."""
        if count >= len(self.events) and not self.complete:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                return []
        return self.events[count:]


class LogStream(Response):
    """One client's reading of a log. The client may go, and the answer goes on."""

    def __init__(self, log: EventLog, start: int, config: ApiConfig) -> None:
        """From the event with the sequence number `start`."""
        self.status_code = 200
        self.background = None
        self.raw_headers = list(HEADERS)
        self._log = log
        self._at = start
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events as they come. Raises ClientGoneError."""
        try:
            await until_hangup(receive, self._pump(send))
        except FaultError as stopping:
            await self._body(send, self._error(stopping.fault), more=False)

    def _error(self, fault: Fault) -> bytes:
        """The reading ends; whether the response does is another matter."""
        fields = {"type": "error", "code": fault.kind.value.openai_code, "message": fault.message, "param": None}
        return encoded_event("error", {**fields, "sequence_number": self._at})

    async def _pump(self, send: Send) -> None:
        await self._send(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        while not (self._log.complete and self._at >= len(self._log.events)):
            events = await self._log.beyond(self._at, self._config.keepalive_s)
            self._at += len(events)
            await self._body(send, b"".join(events) or EMPTY_LINES, more=True)
        await self._body(send, b"", more=False)

    async def _body(self, send: Send, body: bytes, *, more: bool) -> None:
        await self._send(send, {"type": "http.response.body", "body": body, "more_body": more})

    async def _send(self, send: Send, message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(self._config.stall_s):
                await send(message)
        except TimeoutError:
            raise ClientGoneError("the client does not read what it asked for") from None
