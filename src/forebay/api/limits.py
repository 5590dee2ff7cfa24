"""The bound on a request's body, in bytes and in time. How many requests may wait is the router's to say.

Pure ASGI: it counts what really arrives, so a chunked body without a length can't pass it, and a body
that trickles in is ended by its deadline.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forebay.api.errors import FaultError, Kind, error_response, log_failure


class BodyLimitMiddleware:
    """Answers 413 to a body above `max_bytes` and 408 to one that takes longer than `timeout_s`."""

    def __init__(self, app: ASGIApp, max_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request with a bounded body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        body = _BoundedBody(receive, self._max_bytes, self._timeout_s)
        started = False

        async def send_unless_failed(message: Message) -> None:
            nonlocal started
            if started or body.fault is None:
                started = True
                await send(message)

        if length.isdigit() and int(length) > self._max_bytes:
            body.too_large()
        else:
            await self._serve(scope, body, send_unless_failed)
        if body.fault is not None and not started:
            log_failure(body.fault, body.fault.fault)
            response = error_response(body.fault.fault, scope["path"], {"connection": "close"})
            await response(scope, receive, send)

    async def _serve(self, scope: Scope, body: _BoundedBody, send: Send) -> None:
        try:
            await self._app(scope, body.receive, send)
        except FaultError as error:
            # What reads the body may also have turned the failure into an answer of its own, which was not sent.
            if error is not body.fault:
                raise


class _BoundedBody:
    """Counts and times the body of one request."""

    def __init__(self, receive: Receive, max_bytes: int, timeout_s: float) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._deadline = asyncio.get_running_loop().time() + timeout_s
        self._seen = 0
        self._complete = False
        self.fault: FaultError | None = None

    def too_large(self) -> FaultError:
        """The error for a body above the limit."""
        self.fault = FaultError(Kind.BODY_SIZE, f"The request's body is larger than {self._max_bytes} bytes.")
        return self.fault

    async def receive(self) -> Message:
        """The next message; once the body is there, without a deadline (it may be the hang-up, hours later)."""
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self.fault = FaultError(Kind.SLOW_BODY, "The request's body took too long to arrive.")
            raise self.fault from None
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            if self._seen > self._max_bytes:
                raise self.too_large()
        return message
