"""JSON as chat templates write it: the tools on offer, the arguments of calls, results.

Templates of the Llama and Mistral kind pass objects through a JSON writer, which puts one space behind each comma and
colon. Here texts are respaced instead of being read and written again, so numbers, the order of keys and repeated keys
stay as they were sent.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from forebay.recipe.conversation import ToolSpec

_PARTS: Final = re.compile(r'("(?:[^"\\]|\\.)*")|([ \t\r\n]+)|([:,])')


def tool_object(tool: ToolSpec, *, filled: bool = False) -> dict[str, Any]:
    """A tool as Chat Completions has it, which is how published templates show it. What the client left out stays out,
    or with `filled` is there and empty."""
    function: dict[str, Any] = {"name": tool.name}
    if tool.description or filled:
        function["description"] = tool.description
    if tool.parameters is not None or filled:
        function["parameters"] = tool.parameters or {}
    return {"type": "function", "function": function}


def written(value: Any, indent: int | None = None) -> str:
    """A value as JSON text, with characters outside ASCII as they are."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def inner(text: str) -> str:
    """A text as it stands between the quotes of a JSON string."""
    return written(text)[1:-1]


def respaced(text: str) -> str:
    """A JSON text with the usual spaces and no others; a text that is no JSON becomes a JSON string, a blank one an
    empty object."""
    if not text.strip():
        return "{}"
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return written(text)
    return _PARTS.sub(_respace, text)


def _respace(match: re.Match[str]) -> str:
    string, space, mark = match.groups()
    if space is not None:
        return ""
    return f"{mark} " if mark is not None else _unescaped(string)


def _unescaped(string: str) -> str:
    """A JSON string in the spelling of `written`, unless it holds half of a surrogate pair."""
    if "\\" not in string:
        return string
    shown = written(json.loads(string))
    return shown if _has_utf8(shown) else string


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
