"""The routes of OpenAI's Responses protocol: create, count; read, list the input of, cancel, delete."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from forebay.api.replies import ERRORS, json_response
from forebay.api.responses_jobs import Jobs
from forebay.api.responses_log import LogStream
from forebay.api.responses_output import Json
from forebay.api.responses_service import ResponsesService
from forebay.api.responses_store import Record
from forebay.api.responses_types import Includable, InputTokensRequest, ResponsesRequest
from forebay.api.service import Service, identity_of
from forebay.core.errors import InvalidRequestError

_ResponseId = Annotated[str, Path(max_length=128)]
_Include = Annotated[
    list[Includable] | None, Query(alias="include[]", max_length=16, description="Accepted; a response has it all.")
]


def _page(record: Record, after: str | None, limit: int, order: str) -> Json:
    """A part of a record's items. Raises InvalidRequestError for an `after` that is not among them."""
    items = record.items()
    if order == "desc":
        items.reverse()
    start = 0
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise InvalidRequestError(f"Item with id '{after[:128]}' not found.", "after")
        start = ids.index(after) + 1
    page = items[start : start + limit]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": "", "last_id": ""}
    return {"object": "list", "data": page, **ends, "has_more": start + limit < len(items)}


def _add_creation(routes: APIRouter, responses: ResponsesService) -> None:
    @routes.post("/v1/responses", responses=ERRORS, response_model=None)
    async def create_response(body: ResponsesRequest, request: Request) -> Response:
        """Answer a conversation, given as items."""
        return await responses.create(body, request)

    @routes.post("/v1/responses/input_tokens", responses=ERRORS, response_model=None)
    async def count_input_tokens(body: InputTokensRequest, request: Request) -> Response:
        """Tokens of the prompt that the same fields would make in /v1/responses."""
        return await responses.count(body, request)


def _add_reading(routes: APIRouter, responses: ResponsesService) -> None:
    store, config = responses.store, responses.service.config

    @routes.get("/v1/responses/{response_id}", responses=ERRORS, response_model=None)
    async def read_response(
        *,
        response_id: _ResponseId,
        request: Request,
        stream: bool = False,
        starting_after: Annotated[int | None, Query(ge=0, le=2**31)] = None,
        include: _Include = None,
        include_obfuscation: Annotated[Literal["false"] | None, Query()] = None,
    ) -> Response:
        """A response that is kept; with `stream` its events, when it was created with `background` and `stream`."""
        record = store.get(identity_of(request).tenant, response_id)
        if not stream:
            return json_response(record.answer.object())
        if record.log is None:
            text = "Only a response that was created with 'background' and 'stream' can be streamed again."
            raise InvalidRequestError(text, "stream")
        return LogStream(record.log, 0 if starting_after is None else starting_after + 1, config)

    @routes.get("/v1/responses/{response_id}/input_items", responses=ERRORS, response_model=None)
    async def list_input_items(
        *,
        response_id: _ResponseId,
        request: Request,
        after: Annotated[str | None, Query(max_length=256)] = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        order: Literal["asc", "desc"] = "desc",
        include: _Include = None,
    ) -> Response:
        """The items that a response's request sent itself, without those of the responses before it."""
        page = _page(store.get(identity_of(request).tenant, response_id), after, limit, order)
        # json rather than msgspec: these are a client's own words.
        return Response(json.dumps(page), media_type="application/json")


def _add_ending(routes: APIRouter, responses: ResponsesService) -> None:
    @routes.delete("/v1/responses/{response_id}", responses=ERRORS, response_model=None)
    async def delete_response(response_id: _ResponseId, request: Request) -> Response:
        """Forget a response; one that is still being made is cancelled. Conversations that build on it end with it."""
        record = responses.store.delete(identity_of(request).tenant, response_id)
        return json_response({"id": record.answer.id, "object": "response", "deleted": True})

    @routes.post("/v1/responses/{response_id}/cancel", responses=ERRORS, response_model=None)
    async def cancel_response(response_id: _ResponseId, request: Request) -> Response:
        """End a response that is being made in the background."""
        return await responses.cancel(identity_of(request).tenant, response_id)


def responses_routes(service: Service, jobs: Jobs) -> APIRouter:
    """All routes of the protocol; `jobs` owns what runs in the background."""
    routes = APIRouter(tags=["OpenAI"])
    responses = ResponsesService(service, jobs)
    _add_creation(routes, responses)
    _add_reading(routes, responses)
    _add_ending(routes, responses)
    return routes
