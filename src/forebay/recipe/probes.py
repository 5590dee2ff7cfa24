"""The conversations on which a typed template has to do exactly what the model's own does: every shape, with texts and
calls that templates are known to treat differently."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from forebay.recipe.conversation import Conversation, Message, Role, ToolCall, ToolSpec

_SHAPES: Final = (
    *("u", "su", "uau", "suau", "uauau", "suauau", "uu", "ssu", "usu", "au", "uaau"),
    *("ua", "sua", "uaua", "suaua"),
)
"""Roles by their first letter; those that end in an answer are continued."""
_TOOL_SHAPES: Final = ("u", "su", "uct", "suct", "uctau", "uctct", "uau", "uCt", "udtt", "urt", "urtru", "ucta", "sua")
"""With tools. c is a call, C one with text before it, d two calls, r a call or an answer with reasoning, t a result."""
_ROLES: Final[dict[str, Role]] = {"s": "system", "u": "user", "a": "assistant"}
_TEXTS: Final = (
    {"s": "Be brief.", "u": "What is 17 + 25?", "a": "It is 42."},
    {"s": "  Two  lines,\n indented.\n", "u": "\n\nWhy?  ", "a": "\n  Because.\n"},
    {"s": "Rhyme.", "u": "Go on", "a": "<think>\nFirst this.\n</think>\n\nThen that."},
)
_TOOLS: Final = [
    ToolSpec(
        "get_weather",
        "The weather at a place, in °C.",
        {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Its name"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    ),
    ToolSpec("now", "The time.", {"type": "object", "properties": {}}),
]
_BARE: Final = [ToolSpec("now")]
_CALLS: Final = (
    ToolCall("a1b2c3d4e", "get_weather", '{"city": "Zürich", "days": 3}'),
    ToolCall("f5g6h7i8j", "now", "{}"),
)
_RESULTS: Final = ('{"sky": "clear"}', " It rains. \n")


def plain_probes(*, thinking: bool) -> Iterator[tuple[Conversation, bool]]:
    """Conversations without tools, and whether their last message is to be continued; `thinking` tries the switch."""
    for shape, texts, switch in product(_SHAPES, _TEXTS, _switches(thinking)):
        messages = [Message(_ROLES[letter], texts[letter]) for letter in shape]
        yield Conversation(messages, thinking=switch), shape.endswith("a")


def tool_probes(*, thinking: bool) -> Iterator[tuple[Conversation, bool]]:
    """The same with tools, calls and results.

    No text is there twice, since some templates look for the last question by its text; and no name or description has
    a quote, which some templates write into JSON as it is.
    """
    for shape, switch in product(_TOOL_SHAPES, _switches(thinking)):
        yield Conversation(_messages(shape), _TOOLS, thinking=switch), shape.endswith("a")
    for shape in ("u", "uctau"):
        yield Conversation(_messages(shape), _BARE), False


def _switches(thinking: bool) -> tuple[bool | None, ...]:
    return (None, True, False) if thinking else (None,)


def _messages(shape: str) -> list[Message]:
    messages: list[Message] = []
    waiting: list[ToolCall] = []
    for at, letter in enumerate(shape):
        if letter == "t":
            call = waiting.pop(0)
            messages.append(Message("tool", _RESULTS[at % 2], call_id=call.id, name=call.name))
        elif letter in _ROLES:
            messages.append(Message(_ROLES[letter], f"{_TEXTS[0][letter]} ({at})"))
        else:
            waiting = list(_CALLS[: 2 if letter == "d" else 1]) if shape[at + 1 : at + 2] == "t" else []
            text = "I will look." if letter == "C" or not waiting else ""
            messages.append(Message("assistant", text, "First\nthis." if letter == "r" else "", waiting[:]))
    return messages
