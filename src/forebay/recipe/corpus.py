"""The injection corpus: where a client's text can stand, and the ways to write a control token there. Cases only; they
are run by `corpus_run.py`.

A case is a spelling, a field and a form. Fields are those of all three protocols after they became a `Conversation`.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from forebay.recipe.conversation import Conversation, Message, ToolCall, ToolSpec

Typed = str | list[str]
"""A text, in one piece or in parts."""

_ZERO_WIDTH: Final = "\u200b"
_WIDE: Final = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
_NARROW: Final = {wide: code for code, wide in _WIDE.items()}


def _halves(spelling: str) -> tuple[str, str]:
    middle = max(len(spelling) // 2, 1)
    return spelling[:middle], spelling[middle:]


def _split(spelling: str) -> Typed:
    return list(_halves(spelling))


def _doubled(spelling: str) -> Typed:
    """Twice, and once within itself, which a filter that removes markers would put together."""
    first, second = _halves(spelling)
    return f"{spelling}{spelling} {first}{spelling}{second}"


def _other_width(spelling: str) -> Typed:
    wide = spelling.translate(_WIDE)
    return wide if wide != spelling else spelling.translate(_NARROW)


def _compatible(spelling: str) -> Typed:
    """Characters that NFKC folds into the spelling's own: letters of the mathematical alphabet, small brackets."""
    return "".join(_folded_to(character) for character in unicodedata.normalize("NFKC", spelling))


def _folded_to(character: str) -> str:
    if "a" <= character <= "z":
        return chr(0x1D5BA + ord(character) - ord("a"))
    if "A" <= character <= "Z":
        return chr(0x1D5A0 + ord(character) - ord("A"))
    if "0" <= character <= "9":
        return chr(0x1D7E2 + ord(character) - ord("0"))
    return {"<": "\ufe64", ">": "\ufe65", "|": "\uff5c", "[": "\uff3b", "]": "\uff3d"}.get(character, character)


def _zero_width(spelling: str) -> Typed:
    return _ZERO_WIDTH.join(_halves(spelling))


FORMS: Final[dict[str, Callable[[str], Typed]]] = {
    "whole": lambda spelling: spelling,
    "split over parts": _split,
    "doubled": _doubled,
    "other width": _other_width,
    "NFKC-equal": _compatible,
    "zero width inside": _zero_width,
}
"""The ways to write a spelling."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A conversation with the text in its field."""

    conversation: Conversation
    continue_final: bool = False


def _talk(*messages: Message, tools: list[ToolSpec] | None = None) -> Placed:
    return Placed(Conversation(list(messages), tools=tools or []))


_ASK: Final = Message("user", "Hello")
_AGAIN: Final = Message("user", "Go on")


def _tool(name: str = "look", description: str = "Looks.", properties: dict[str, Any] | None = None) -> ToolSpec:
    given = {"place": {"type": "string"}} if properties is None else properties
    return ToolSpec(name, description, {"type": "object", "properties": given})


def _with_place(**schema: Any) -> ToolSpec:
    return _tool(properties={"place": {"type": "string", **schema}})


def _offered(tool: ToolSpec) -> Placed:
    return _talk(_ASK, tools=[tool])


def _called(
    name: str = "look",
    call_id: str = "call00001",
    arguments: dict[str, str] | None = None,
    result: Typed = "Seen.",
) -> Placed:
    """A question, a call, its result and another question."""
    spelled = json.dumps(arguments or {"place": "here"}, ensure_ascii=False)
    return _talk(
        _ASK,
        Message("assistant", "", calls=[ToolCall(call_id, name, spelled)]),
        Message("tool", result, call_id=call_id, name=name),
        Message("assistant", "I saw it."),
        _AGAIN,
        tools=[_tool()],
    )


@dataclass(frozen=True, slots=True)
class Field:
    """A place for a client's text."""

    name: str
    place: Callable[[Any], Placed]
    parts: bool = False
    """Whether a text may come in parts there."""


FIELDS: Final = (
    Field("role", lambda text: _talk(Message(text, "Hello"), _ASK)),
    Field("content of system", lambda text: _talk(Message("system", text), _ASK), parts=True),
    Field("content of user", lambda text: _talk(Message("user", text)), parts=True),
    Field("content of user, earlier", lambda text: _talk(Message("user", text), Message("assistant", "Hi"), _AGAIN)),
    Field("content of assistant", lambda text: _talk(_ASK, Message("assistant", text), _AGAIN), parts=True),
    Field("reasoning", lambda text: _talk(_ASK, Message("assistant", "Hi", reasoning=text), _AGAIN)),
    Field("prefill", lambda text: Placed(Conversation([_ASK, Message("assistant", text)]), continue_final=True)),
    Field("name", lambda text: _talk(Message("user", "Hello", name=text))),
    Field("tool name", lambda text: _offered(_tool(name=text))),
    Field("tool description", lambda text: _offered(_tool(description=text))),
    Field("schema key", lambda text: _offered(_tool(properties={text: {"type": "string"}}))),
    Field("schema description", lambda text: _offered(_with_place(description=text))),
    Field("schema enum", lambda text: _offered(_with_place(enum=[text, "here"]))),
    Field("call name", lambda text: _called(name=text)),
    Field("call id", lambda text: _called(call_id=text)),
    Field("argument key", lambda text: _called(arguments={text: "here"})),
    Field("argument value", lambda text: _called(arguments={"place": text})),
    Field("tool result", lambda text: _called(result=text), parts=True),
)
"""Every field that can reach a prompt. Stop strings and response schemas, which can't, are in `corpus_answers.py`."""


def benign(field: Field, form: str, word: str) -> Placed:
    """The field with an ordinary word in it, in as many parts as the form has."""
    return field.place([word[:2], word[2:]] if form == "split over parts" else word)


def texts_of(field: Field, form: str, spellings: Iterable[str]) -> list[Typed]:
    """What is typed for the spellings, each once. Empty when the form can't be in that field; a form that changes
    nothing of a spelling is left out."""
    if form == "split over parts" and not field.parts:
        return []
    texts = [(spelling, FORMS[form](spelling)) for spelling in spellings]
    return [text for spelling, text in texts if form == "whole" or text != spelling]


def shown(text: Typed) -> str:
    """The text as a message has it."""
    return Message("user", text).content
