"""The conversations that a template is tried with when its model is loaded.

Every string is a word of its own, so that it can be found again in what the template makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from forebay.recipe.conversation import Conversation, Message, Role, ToolCall, ToolSpec
from forebay.recipe.jinja.marked import MARKS, TOOLS
from forebay.recipe.strings import client_strings

_WORDS: Final = {"system": "Zulu quebec", "user": "Whiskey xray", "assistant": "Kilo juliett"}
_SHAPES: Final = (("user",), ("system", "user"), ("user", "assistant", "user"), ("system", "user", "assistant", "user"))
TOOL: Final = ToolSpec(
    "foxtrot_golf",
    "Hotel india.",
    {
        "type": "object",
        "properties": {"oscar_papa": {"type": "string", "description": "Romeo sierra.", "enum": ["tango", "uniform"]}},
        "required": ["oscar_papa"],
    },
)
FIRST: Final = "victor"
SECOND: Final = "yankee"
"""What the first call of a message says, and the second."""
BESIDE: Final = "Bravo charlie"
"""Text of a message that calls."""
_ARGUMENTS: Final = (f'{{"oscar_papa": "{FIRST}", "count": 1.10}}', f'{{"oscar_papa": "{SECOND}"}}')
_SCHEMA_WORDS: Final = frozenset(("", "type", "object", "string", "properties", "description", "enum", "required"))
"""What a template may spell itself."""
RESULT: Final = "Lima mike 25"

NAMED: Final = Message("user", "Whiskey xray", name="Alfa")


def probes() -> Iterator[Conversation]:
    """Conversations of each usual shape without tools."""
    for shape in _SHAPES:
        for thinking in (None, True, False):
            yield Conversation(messages(*shape), thinking=thinking)


def messages(*roles: Role) -> list[Message]:
    """Messages of these roles."""
    return [Message(role, f"{_WORDS[role]} {at}") for at, role in enumerate(roles)]


def called(text: str = "", *, count: int = 1, reasoning: str = "") -> list[Message]:
    """A question, the calls of an answer, and their results. Ids are as Mistral's templates want them."""
    calls = [ToolCall(f"november{at}", TOOL.name, each) for at, each in enumerate(_ARGUMENTS[:count])]
    results = [Message("tool", f"{RESULT} {at}", call_id=call.id, name=TOOL.name) for at, call in enumerate(calls)]
    return [*messages("user"), Message("assistant", text, calls=calls, reasoning=reasoning), *results]


def tool_probes() -> Iterator[Conversation]:
    """Conversations with tools, calls and results."""
    tools = [TOOL]
    yield Conversation(messages("user"), tools)
    yield Conversation(messages("system", "user"), tools)
    yield Conversation(called(), tools)
    yield Conversation(called(BESIDE), tools)
    yield Conversation(called(BESIDE, reasoning="Delta echo"), tools)
    yield Conversation(called(count=2), tools)
    yield Conversation([*called(), *messages("assistant", "user")], tools)


def known_words(conversation: Conversation) -> dict[str, set[int]]:
    """Each string that may stand in the prompt as it is, with the marks that it may have there."""
    known: dict[str, set[int]] = {}
    for path, text in client_strings(conversation):
        if path[-1] == "arguments" or text in _SCHEMA_WORDS:
            continue
        origin = TOOLS if path[0] == "tools" else MARKS[conversation.messages[int(path[1])].origin]
        known.setdefault(text, set()).add(origin)
    calls = [call for message in conversation.messages for call in message.calls]
    for word in ("oscar_papa", FIRST, SECOND) if calls else ():
        known.setdefault(word, set()).add(MARKS[conversation.messages[1].origin])
    return known
