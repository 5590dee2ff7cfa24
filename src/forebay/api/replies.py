"""JSON answers, and what the OpenAPI description says of answers that have no model of their own."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "The request can't be served as it was asked; the body says why, in the protocol's own shape."
    },
    "5XX": {"description": "The server or its engine can't serve it now; `retry-after` says when to try again."},
}


def json_response(value: object) -> Response:
    """A 200 answer. The text in it comes from the detokeniser and from options, so it is always valid Unicode."""
    return Response(msgspec.json.encode(value), media_type="application/json")
