"""Turns pydantic's list of errors into one sentence and the field to blame. No HTTP and no protocol's shape."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_MAX_PARAM = 200
_FIELD = re.compile(r"[a-z][a-z0-9_]*")
_BRANCHES = frozenset({"str", "int", "float", "bool", "dict", "list", "none", "body", "query", "path"})


def _is_field(part: object) -> bool:
    """Whether a part of a location names a field or index of the request, and not a branch of a union."""
    if isinstance(part, int):
        return True
    return isinstance(part, str) and part not in _BRANCHES and _FIELD.fullmatch(part) is not None


def param_of(location: Sequence[object], kind: str) -> str | None:
    """The dotted path of the field, such as `messages.0.content`."""
    last = len(location) - 1
    parts = [str(p) for i, p in enumerate(location) if _is_field(p) or (i == last and kind == "extra_forbidden")]
    return ".".join(parts)[:_MAX_PARAM] or None


def describe(errors: Sequence[Mapping[str, Any]]) -> tuple[str, str | None]:
    """(message, param) of the error that says most: the one deepest in the request."""
    error = max(errors, key=lambda e: len(e["loc"]))
    kind = str(error["type"])
    if kind == "json_invalid":
        return "The body is not valid JSON.", None
    param = param_of(error["loc"], kind)
    if kind == "extra_forbidden":
        return f"Unrecognized request argument supplied: {param}", param
    if kind == "missing":
        return (f"Missing required parameter: '{param}'." if param else "The request needs a JSON body."), param
    message = str(error["msg"])
    if param is None:
        return f"{message}. Send a JSON object with content-type application/json.", None
    return f"Invalid value for '{param}': {message[:1].lower()}{message[1:]}.", param
