"""Failures in each protocol's own words: kind → HTTP status, type and code for OpenAI's and for Anthropic's clients.

OpenAI: {"error": {"message", "type", "param", "code"}}. Anthropic: {"type": "error", "error": {"type", "message"},
"request_id"}. Handlers for the framework's own errors (404, 405, validation) are here too, so that no answer has
another shape. A message never names a path of the server or holds a traceback.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from forebay.api.request_id import current_request_id
from forebay.api.validation import describe
from forebay.core.errors import (
    ContextLengthError,
    ConversationError,
    EngineUnavailableError,
    ForebayError,
    InvalidRequestError,
    OverloadedError,
)

log = logging.getLogger(__name__)


class _Shape(NamedTuple):
    openai_status: int
    openai_type: str
    openai_code: str | None
    anthropic_status: int
    anthropic_type: str


class Kind(Enum):
    """Kinds of failure that a client can tell apart."""

    INVALID = _Shape(400, "invalid_request_error", "invalid_value", 400, "invalid_request_error")
    CONTEXT = _Shape(400, "invalid_request_error", "context_length_exceeded", 400, "invalid_request_error")
    KEY = _Shape(401, "authentication_error", "invalid_api_key", 401, "authentication_error")
    PERMISSION = _Shape(403, "permission_error", "permission_denied", 403, "permission_error")
    NOT_FOUND = _Shape(404, "invalid_request_error", "not_found", 404, "not_found_error")
    MODEL = _Shape(404, "invalid_request_error", "model_not_found", 404, "not_found_error")
    METHOD = _Shape(405, "invalid_request_error", "method_not_allowed", 405, "invalid_request_error")
    SLOW_BODY = _Shape(408, "timeout_error", "request_timeout", 408, "timeout_error")
    BODY_SIZE = _Shape(413, "invalid_request_error", "request_too_large", 413, "request_too_large")
    CONVERSATION = _Shape(422, "invalid_request_error", "invalid_conversation", 422, "invalid_request_error")
    """Well-formed, but its roles are out of order or, where that is refused, a text holds a marker."""
    OVERLOADED = _Shape(429, "rate_limit_error", "overloaded", 529, "overloaded_error")
    INTERNAL = _Shape(500, "server_error", "internal_error", 500, "api_error")
    UNAVAILABLE = _Shape(503, "server_error", "engine_unavailable", 503, "api_error")
    DEADLINE = _Shape(504, "timeout_error", "deadline_exceeded", 504, "timeout_error")


@dataclass(frozen=True, slots=True)
class Fault:
    """One failure, before it has a protocol's shape."""

    kind: Kind
    message: str
    param: str | None = None
    retry_after: float | None = None
    """Seconds, for failures that pass by themselves."""
    place: Mapping[str, str | int] = field(default_factory=dict)
    """Of a conversation that can't be served: `pointer` (JSON pointer), and for a marker `offset` (characters) and
    `marker`; further fields of the error's object in every protocol."""
    details: Mapping[str, Any] | None = None
    """What Anthropic's clients read of some errors, to act on it."""


class FaultError(ForebayError):
    """Raised by the API's own layers; carries its fault."""

    def __init__(
        self, kind: Kind, message: str, param: str | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.fault = Fault(kind, message, param, details=details)


_BY_STATUS = {404: Kind.NOT_FOUND, 405: Kind.METHOD, 413: Kind.BODY_SIZE}
_NO_ENGINE = Fault(Kind.UNAVAILABLE, "No engine is running at the moment. Try again shortly.", retry_after=1.0)
_INTERNAL = Fault(Kind.INTERNAL, "The server failed while it worked on this request.")


def fault_of(error: BaseException) -> Fault:
    """What a client is told of this error; everything unforeseen is INTERNAL and says nothing of the inside."""
    match error:
        case FaultError():
            fault = error.fault
        case ConversationError():
            fault = Fault(Kind.CONVERSATION, error.message, error.param, place=_place(error))
        case InvalidRequestError():
            kind = Kind.CONTEXT if isinstance(error, ContextLengthError) else Kind.INVALID
            fault = Fault(kind, error.message, error.param)
        case OverloadedError():
            fault = Fault(Kind.OVERLOADED, error.message, retry_after=error.retry_after)
        case EngineUnavailableError():
            fault = _NO_ENGINE
        case RequestValidationError():
            fault = Fault(Kind.INVALID, *describe(error.errors()))
        case HTTPException():
            fault = Fault(_BY_STATUS.get(error.status_code, Kind.INVALID), str(error.detail))
        case _:
            fault = _INTERNAL
    return fault


def _place(error: ConversationError) -> dict[str, str | int]:
    found = {"pointer": error.pointer, "offset": error.offset, "marker": error.marker}
    return {name: value for name, value in found.items() if value is not None}


def openai_error(fault: Fault) -> dict[str, Any]:
    """The body of an error for OpenAI's clients."""
    shape = fault.kind.value
    error = {"message": fault.message, "type": shape.openai_type, "param": fault.param, "code": shape.openai_code}
    return {"error": {**error, **fault.place}}


def anthropic_error(fault: Fault) -> dict[str, Any]:
    """The body of an error (and of an `error` event) for Anthropic's clients."""
    # This shape has no field for the place, which Anthropic puts before the sentence.
    named = fault.param is None or fault.param in fault.message
    message = fault.message if named else f"{fault.param}: {fault.message}"
    error: dict[str, Any] = {"type": fault.kind.value.anthropic_type, "message": message, **fault.place}
    if fault.details is not None:
        error["details"] = dict(fault.details)
    return {"type": "error", "error": error, "request_id": current_request_id.get()}


def is_anthropic(path: str) -> bool:
    """Whether a path speaks Anthropic's protocol."""
    return path == "/v1/messages" or path.startswith("/v1/messages/")


def error_response(fault: Fault, path: str, headers: dict[str, str] | None = None) -> Response:
    """The whole answer to a failed request, in the shape that the path's clients read."""
    shape = fault.kind.value
    anthropic = is_anthropic(path)
    status = shape.anthropic_status if anthropic else shape.openai_status
    body = anthropic_error(fault) if anthropic else openai_error(fault)
    headers = dict(headers or {})
    if fault.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(fault.retry_after)))
    if fault.kind is Kind.KEY:
        headers["www-authenticate"] = "Bearer"
    # json rather than msgspec: a message may quote a lone surrogate of the client's.
    return Response(json.dumps(body), status, headers, media_type="application/json")


def log_failure(error: BaseException, fault: Fault) -> None:
    """One line per failed request; with the traceback where nothing foresaw the failure."""
    unforeseen = fault is _INTERNAL
    log.log(
        logging.ERROR if unforeseen else logging.WARNING,
        "request failed",
        exc_info=error if unforeseen else None,
        extra={"kind": fault.kind.name.lower(), "reason": fault.message, "param": fault.param},
    )


async def _handle(request: Request, error: Exception) -> Response:
    fault = fault_of(error)
    log_failure(error, fault)
    allow = (error.headers or {}) if isinstance(error, HTTPException) else {}
    return error_response(fault, request.url.path, dict(allow))


def install_handlers(app: FastAPI) -> None:
    """Make every error of the app leave in its protocol's shape."""
    for kind in (ForebayError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _handle)
