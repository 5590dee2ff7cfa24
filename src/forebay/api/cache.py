"""The KV cache as a client and an operator see it: retention asked for in a request, usage by tier, GET /v1/cache.

It moves nothing and keeps nothing; the engine does. Nobody learns of another tenant's pages here but by their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from forebay.api.auth import Identity
from forebay.api.parts import CacheControl
from forebay.api.replies import ERRORS, json_response
from forebay.api.wire import Wire
from forebay.core.errors import InvalidRequestError
from forebay.core.messages import WorkerStats

_TTL_S = {"5m": 300.0, "1h": 3600.0}
_DEFAULT_TTL = "5m"


class CacheField(Wire):
    """How long what this request leaves in the cache is kept."""

    retention: Annotated[
        str | None, Field(max_length=16, description="A retention class of the server: agent, chat, none, or its own.")
    ] = None


def retention_of(field: CacheField | None, classes: Mapping[str, float]) -> str | None:
    """The class asked for; None takes the server's default. Raises InvalidRequestError for one that there isn't."""
    name = None if field is None else field.retention
    if name is not None and name not in classes:
        known = ", ".join(sorted(classes))
        raise InvalidRequestError(
            f"This server has no retention class '{name}'; its classes are {known}.", "cache.retention"
        )
    return name


def retention_for(controls: Iterable[CacheControl | None], classes: Mapping[str, float]) -> str | None:
    """The stored class whose length is nearest to the longest `ttl` asked for; None when nothing was asked for."""
    asked = [_TTL_S[control.ttl or _DEFAULT_TTL] for control in controls if control is not None]
    stored = [(length, name) for name, length in classes.items() if length > 0]
    if not asked or not stored:
        return None
    return min(stored, key=lambda item: (abs(item[0] - max(asked)), item[0]))[1]


def by_tier(cached: int, host: int, disk: int) -> dict[str, Any]:
    """The extension field of `usage` for prompts that were read from below the device at least in part."""
    if not host and not disk:
        return {}
    return {"cached_tokens_by_tier": {"device": cached - host - disk, "host": host, "disk": disk}}


class LastStats:
    """The worker's last statistics."""

    def __init__(self) -> None:
        self.stats = WorkerStats()

    def routes(self, classes: Mapping[str, float]) -> APIRouter:
        """GET /v1/cache."""
        routes = APIRouter(tags=["Models"])

        @routes.get("/v1/cache", responses=ERRORS, response_model=None)
        async def read_cache(request: Request) -> Response:
            """What each tier of the KV cache holds and has done since the engine started. Classes are in seconds.

            `tenant` is what the caller's own pages take below the device.
            """
            stats = self.stats
            tiers = None if stats.tiers is None else msgspec.to_builtins(stats.tiers)
            held = {} if tiers is None else tiers.pop("tenants")
            identity: Identity = request.state.identity
            host, disk = held.get(identity.tenant, (0, 0))
            device = {"pages": stats.pages_total, "used": stats.pages_used, "cached": stats.pages_cached}
            return json_response(
                {
                    "object": "cache",
                    "device": device,
                    "tiers": tiers,
                    "tenant": {"host_bytes": host, "disk_bytes": disk},
                    "preemptions": stats.preemptions_by,
                    "retention_classes": dict(classes),
                }
            )

        return routes
