"""POST /v1/recipe/render: what a request's prompt is, token by token, with who wrote each; for operators. It generates
nothing.

The body is the request that a client would send; what is asked about it is in the query, so that the body stays as it
is. It needs a key like every other route, and the answer holds nothing but what the caller sent and the template.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

from forebay.api.answer_metrics import AnswerMetrics
from forebay.api.answer_store import AnswerStore
from forebay.api.any_protocol import ProtocolName, ask_of, protocol_of
from forebay.api.asking import Ask, Prepared
from forebay.api.keeping import KeptAnswers
from forebay.api.ports import RecipePort
from forebay.api.preparing import prepare
from forebay.api.replies import ERRORS, json_response
from forebay.api.service import Service, identity_of
from forebay.recipe.rendering import Rendering, rendering_by_string, rendering_of


def shown(prepared: Prepared, recipe: RecipePort) -> Rendering:
    """The prompt as it would be served."""
    prompt = recipe.encode_chat(prepared.conversation, continue_final=prepared.continued)
    return rendering_of(recipe.vocabulary, prompt)


def shown_by_string(prepared: Prepared, recipe: RecipePort) -> Rendering:
    """What string rendering would have made of the same conversation."""
    pieces = recipe.pieces(prepared.conversation, continue_final=prepared.continued)
    return rendering_by_string(recipe.vocabulary, pieces)


def _fields(prepared: Prepared, recipe: RecipePort, by_string: bool) -> dict[str, Any]:
    fields = shown(prepared, recipe).as_json()
    if by_string:
        naive = shown_by_string(prepared, recipe)
        fields["naive"] = {**naive.as_json(), "forged": naive.forged}
    return fields


async def prepared_alone(ask: Ask, recipe: RecipePort) -> Prepared:
    """What a server would make of the request that has kept no answers; for looking at a prompt without one.

    Raises InvalidRequestError in the terms of the request.
    """
    nothing = KeptAnswers(AnswerStore(1, 1, 1.0), "default", AnswerMetrics(CollectorRegistry(), {"model": ""}))
    return await prepare(ask, recipe, nothing)


def render_routes(service: Service) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["Tokens"])

    @routes.post("/v1/recipe/render", responses=ERRORS, response_model=None)
    async def render(
        request: Request,
        body: Annotated[dict[str, Any], Body(description="A chat completions, responses or messages request.")],
        protocol: Annotated[
            ProtocolName | Literal["auto"], Query(description="Whose request it is; `auto` tells by its fields.")
        ] = "auto",
        against: Annotated[
            Literal["naive"] | None, Query(description="Also give what rendering as a string would make of it.")
        ] = None,
    ) -> Response:
        """The prompt of a request: ids, spans by origin, and pieces in which control tokens stand alone."""
        name = protocol_of(body) if protocol == "auto" else protocol
        model = body.get("model")
        service.check_model(model if isinstance(model, str) else None)
        ask = ask_of(body, name, service.recipe, service.config)
        service.check_messages(len(ask.conversation.messages))
        prepared = await service.prepare(ask, identity_of(request))
        fields = await asyncio.to_thread(_fields, prepared, service.recipe, against == "naive")
        about = {"model": service.names[0], "template": service.recipe.template_name, "protocol": name}
        return json_response({**about, **fields})

    return routes
