"""GET /health, /ping, /version and /integrity: what probes and operators ask. No key is needed for the first two."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from forebay import __version__
from forebay.api.replies import ERRORS, json_response
from forebay.api.service import Service
from forebay.core.errors import EngineUnavailableError


def health_routes(service: Service) -> APIRouter:
    """The routes for probes."""
    routes = APIRouter(tags=["Health"])

    def state() -> Response:
        if not service.router.healthy:
            raise EngineUnavailableError("no healthy worker")
        return json_response({"status": "ok"})

    @routes.get("/health", responses=ERRORS, response_model=None)
    async def health() -> Response:
        """200 while an engine is there to take requests, else 503."""
        return state()

    @routes.get("/ping", responses=ERRORS, response_model=None)
    async def ping() -> Response:
        """The same as /health, under the name that SageMaker asks for."""
        return state()

    @routes.get("/version", responses=ERRORS, response_model=None)
    async def version() -> Response:
        """The server's version."""
        return json_response({"version": __version__})

    @routes.get("/integrity", responses=ERRORS, response_model=None)
    async def integrity() -> Response:
        """Has the engine recount its KV pages between two steps; `problems` is empty when each is accounted for."""
        return json_response(await service.router.check_integrity())

    return routes
