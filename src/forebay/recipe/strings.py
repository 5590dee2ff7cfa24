"""Every string of a conversation that a client wrote, with the path that leads to it.

Not a check: `conversation.py` and `markers.py` look at what is listed here. Paths are in the terms of Chat Completions,
`("tools", 0, "function", "parameters", "properties")`; the other protocols lead them back to their own requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from forebay.core.errors import InvalidRequestError
from forebay.recipe.conversation import Conversation, Message, ToolSpec

Path = tuple[str | int, ...]
MAX_DEPTH: Final = 64
"""How deep a tool's schema may be nested."""


def client_strings(conversation: Conversation) -> Iterator[tuple[Path, str]]:
    """All texts, names, ids, descriptions, and the keys and values of schemas; a key has the path of its value.

    Raises InvalidRequestError for a schema that is nested too deep.
    """
    for index, message in enumerate(conversation.messages):
        yield from _of_message(("messages", index), message)
    for index, tool in enumerate(conversation.tools):
        yield from _of_tool(("tools", index, "function"), tool)
    if conversation.answer_format is not None and conversation.answer_format.kind == "json_schema":
        yield from _of_json(
            ("response_format", "json_schema", "schema"), _parsed(conversation.answer_format.text), MAX_DEPTH
        )


def _of_message(path: Path, message: Message) -> Iterator[tuple[Path, str]]:
    if isinstance(message.text, str):
        yield (*path, "content"), message.text
    else:
        for place, part in enumerate(message.text):
            yield (*path, "content", place, "text"), part
    if message.reasoning:
        yield (*path, "reasoning_content"), message.reasoning
    for place, call in enumerate(message.calls):
        at = (*path, "tool_calls", place)
        yield (*at, "id"), call.id
        yield (*at, "function", "name"), call.name
        yield (*at, "function", "arguments"), call.arguments
    if message.call_id:
        yield (*path, "tool_call_id"), message.call_id
    if message.name:
        yield (*path, "name"), message.name


def _of_tool(path: Path, tool: ToolSpec) -> Iterator[tuple[Path, str]]:
    yield (*path, "name"), tool.name
    yield (*path, "description"), tool.description
    if tool.parameters is not None:
        yield from _of_json((*path, "parameters"), tool.parameters, MAX_DEPTH)


def _parsed(text: str) -> Any:
    """A schema that is text; None for one that is no JSON, which its grammar's compiler refuses."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _of_json(path: Path, value: Any, depth: int) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
        return
    if not isinstance(value, dict | list):
        return
    if depth == 0:
        raise InvalidRequestError(f"The schema is nested more than {MAX_DEPTH} levels deep.", ".".join(map(str, path)))
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(key, str):
            yield (*path, key), key
        yield from _of_json((*path, key), inner, depth - 1)


def check_unicode(conversation: Conversation) -> None:
    """Raise InvalidRequestError for a string that holds half of a surrogate pair, and for a schema that is nested too
    deep."""
    if _all_unicode(conversation):
        return
    for path, text in client_strings(conversation):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequestError(
                "The text holds a lone surrogate, which is not a character.", ".".join(map(str, path))
            ) from error


def _all_unicode(conversation: Conversation) -> bool:
    """Whether all is well: schemas, which may hold thousands of strings, are looked at as a whole."""
    schemas: list[Any] = [tool.parameters for tool in conversation.tools]
    if conversation.answer_format is not None and conversation.answer_format.kind == "json_schema":
        schemas.append(_parsed(conversation.answer_format.text))
    if _too_deep(schemas):
        return False
    try:
        for index, message in enumerate(conversation.messages):
            "".join(text for _, text in _of_message(("messages", index), message)).encode()
        "".join(tool.name + tool.description for tool in conversation.tools).encode()
        json.dumps(schemas, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_deep(value: list[Any]) -> bool:
    level = value
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
