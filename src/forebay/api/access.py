"""The outer layer: counts every answer by route and status, and turns what nothing else handled into a 500.

At level INFO each request leaves one line: its id, route, status and seconds, and nothing of its content.
"""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forebay.api.errors import error_response, fault_of, log_failure
from forebay.api.hangup import ClientGoneError
from forebay.api.metrics import ApiMetrics

log = logging.getLogger(__name__)
_METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"})


def _route(scope: Scope) -> str:
    """The route's pattern, so that no client can make up label values."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "unmatched"


def _since(started: float) -> float:
    return round(time.monotonic() - started, 4)


class AccessMiddleware:
    """Watches each request from outside."""

    def __init__(self, app: ASGIApp, metrics: ApiMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, started = 0, time.monotonic()

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except ClientGoneError:
            self._metrics.http_hung_up(_route(scope))
            log.info("client hung up", extra={"route": _route(scope), "seconds": _since(started)})
        except Exception as error:  # the last place that can answer
            fault = fault_of(error)
            log_failure(error, fault)
            if status == 0:
                await error_response(fault, scope["path"])(scope, receive, watched_send)
        if status:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.http_answered(_route(scope), method, status)
            about = {"method": method, "route": _route(scope), "status": status, "seconds": _since(started)}
            log.info("request answered", extra=about)
