"""GET /v1/models and /v1/models/{id}: the model that is served, in OpenAI's or (by its header) Anthropic's shape."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from forebay.api.errors import FaultError, Kind
from forebay.api.replies import ERRORS, json_response
from forebay.api.service import Service


def _openai_card(service: Service, name: str) -> dict[str, Any]:
    model = service.router.model
    return {
        "id": name,
        "object": "model",
        "created": service.started,
        "owned_by": "forebay",
        "root": model.name,
        "parent": None,
        "max_model_len": model.max_model_len,
    }


def _anthropic_card(service: Service, name: str) -> dict[str, Any]:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": datetime.fromtimestamp(service.started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": service.router.model.max_model_len - 1,
        "max_tokens": service.router.model.max_model_len - 1,
    }


def _card(service: Service, name: str, request: Request) -> dict[str, Any]:
    anthropic = "anthropic-version" in request.headers
    return _anthropic_card(service, name) if anthropic else _openai_card(service, name)


def model_routes(service: Service) -> APIRouter:
    """The routes that describe the model."""
    routes = APIRouter(tags=["Models"])

    @routes.get("/v1/models", responses=ERRORS, response_model=None)
    async def list_models(request: Request) -> Response:
        """Every name that a request may give for the model."""
        cards = [_card(service, name, request) for name in service.names]
        if "anthropic-version" in request.headers:
            ends = {"first_id": cards[0]["id"], "last_id": cards[-1]["id"]}
            return json_response({"data": cards, "has_more": False, **ends})
        return json_response({"object": "list", "data": cards})

    @routes.get("/v1/models/{model_id:path}", responses=ERRORS, response_model=None)
    async def retrieve_model(model_id: str, request: Request) -> Response:
        """One name of the model."""
        if model_id not in service.names:
            raise FaultError(Kind.MODEL, f"The model '{model_id[:200]}' is not served here.", "model")
        return json_response(_card(service, model_id, request))

    return routes
