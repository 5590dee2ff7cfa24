"""Gives every request an id: the caller's `x-request-id` when that is a plain token, else a new one; and back.

Anthropic's clients read `request-id`, OpenAI's `x-request-id`; every answer carries both. Pure ASGI, so that streams
pass through untouched.
"""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

current_request_id: ContextVar[str] = ContextVar("forebay_request_id", default="-")
_PLAIN = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


def new_id(prefix: str) -> str:
    """An id that nobody can guess, such as `req_3f…`."""
    return f"{prefix}{secrets.token_hex(12)}"


class RequestIdMiddleware:
    """Puts the request's id into `current_request_id` and into the answer's headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request under its id."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _PLAIN.fullmatch(given) else new_id("req_")
        token = current_request_id.set(request_id)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                headers["request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            current_request_id.reset(token)
