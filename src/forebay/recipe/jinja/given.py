"""A conversation as chat templates know it: messages and tools as the dictionaries of Chat Completions.

The same for the marking sandbox and for the reference that it is compared with; they differ in what `dress` makes of a
string.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from forebay.recipe.conversation import Message, ToolCall, ToolSpec
from forebay.recipe.jinja.marked import MARKS, TEMPLATE, TOOLS, Marked
from forebay.recipe.templates.json_text import respaced, tool_object, written

_OBJECTS: Final = frozenset(("function", "parameters"))
Dress = Callable[[str, int], str]
"""Makes a template's string of a text and its mark."""


def marked(text: str, mark: int) -> str:
    """For the sandbox: every character has the mark."""
    return Marked.of(text, mark)


def plain(text: str, mark: int) -> str:
    """For the reference: the text alone."""
    return text


class Written(dict[str, Any]):
    """An object with its JSON text, of a call's arguments or of a tool.

    A template that walks through it sees a dictionary; one that writes it as JSON gets the text. For arguments that is
    the text that was sent, so numbers, repeated keys and their order stay as they were.
    """

    def __init__(self, values: dict[str, Any], text: str) -> None:
        super().__init__(values)
        self.text = text


class Number(float):
    """A number with a point or an exponent, which is written as it was sent: 1.10 is not 1.1."""

    text: str

    @classmethod
    def of(cls, text: str, mark: int, dress: Dress) -> Number:
        number = cls(text)
        number.text = dress(text, mark)
        return number

    def __str__(self) -> str:
        return self.text


def given_messages(messages: Sequence[Message], dress: Dress, *, as_text: bool = False) -> list[dict[str, Any]]:
    """The variable `messages`; `as_text`: the arguments of calls are text."""
    names: dict[str, str] = {}
    given: list[dict[str, Any]] = []
    for message in messages:
        names |= {call.id: call.name for call in message.calls}
        name = message.name or names.get(message.call_id, "")
        given.append(_message(message, name if message.role == "tool" else message.name, dress, as_text))
    return given


def given_tools(tools: Sequence[ToolSpec], dress: Dress) -> list[Any]:
    """The variable `tools`."""
    return [_tool(tool_object(tool), dress) for tool in tools]


def _tool(value: dict[str, Any], dress: Dress) -> Written:
    """A tool, its function and its schema, each with its text."""
    given: dict[str, Any] = {}
    for key, inner in value.items():
        is_object = key in _OBJECTS and isinstance(inner, dict)
        given[dress(key, TOOLS)] = _tool(inner, dress) if is_object else _dressed(inner, TOOLS, dress)
    return Written(given, dress(written(value), TOOLS))


def _message(message: Message, name: str, dress: Dress, as_text: bool) -> dict[str, Any]:
    mark = MARKS[message.origin]
    # A role is one of a fixed set, so it counts as the template's own word.
    given: dict[str, Any] = {"role": dress(message.role, TEMPLATE), "content": dress(message.content, mark)}
    if message.reasoning:
        # Each maker's templates have their own name for it.
        given |= dict.fromkeys(("reasoning_content", "reasoning", "thinking"), dress(message.reasoning, mark))
    if message.calls:
        given["tool_calls"] = [_call(call, mark, dress, as_text) for call in message.calls]
    if message.call_id:
        given["tool_call_id"] = dress(message.call_id, mark)
    if name:
        given["name"] = dress(name, mark)
    return given


def _call(call: ToolCall, mark: int, dress: Dress, as_text: bool) -> dict[str, Any]:
    arguments = dress(call.arguments, mark) if as_text else _arguments(call.arguments, mark, dress)
    function = {dress("name", mark): dress(call.name, mark), dress("arguments", mark): arguments}
    given: dict[str, Any] = {"id": dress(call.id, mark), "type": dress("function", mark), "function": function}
    return {dress(key, mark): value for key, value in given.items()}


def _arguments(text: str, mark: int, dress: Dress) -> Any:
    """An object with its text; the text alone where it is no object, or nested too deep to be walked through."""
    try:
        values = json.loads(text, parse_float=lambda each: Number.of(each, mark, dress)) if text.strip() else {}
        if isinstance(values, dict):
            return Written(_dressed(values, mark, dress), dress(respaced(text), mark))
    except (ValueError, RecursionError):
        pass
    return dress(text, mark)


def _dressed(value: Any, mark: int, dress: Dress) -> Any:
    if isinstance(value, str):
        return dress(value, mark)
    if isinstance(value, dict):
        return {dress(key, mark): _dressed(inner, mark, dress) for key, inner in value.items()}
    if isinstance(value, list):
        return [_dressed(inner, mark, dress) for inner in value]
    return value
