"""The sharpest attack on a template: type, in one message, exactly what it renders for more than that.

For conversations of the usual shapes, what the template spells between two messages is read off its own rendering and
typed into a message that takes the place of both. The result is another conversation, so its ids have to be others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from forebay.core.errors import InvalidRequestError
from forebay.recipe.by_string import Spelled, StringRendering
from forebay.recipe.conversation import Conversation, Message, Role, ToolCall, ToolSpec
from forebay.recipe.corpus_report import CorpusReport
from forebay.recipe.recipe import Recipe

_SHAPES: Final = ("uau", "suau", "su", "ssu", "uu", "uct", "uctau", "uctu", "uCtt", "suct")
"""Roles by their first letter; c is an assistant's call, C two of them. Where there is a call, a tool is offered."""
_ROLES: Final[dict[str, Role]] = {"s": "system", "u": "user", "a": "assistant"}
_WORDS: Final = ("Alfa bravo", "Kilo lima", "Papa quebec", "Tango uniform", "Yankee zulu")
_PLACE: Final = re.compile(r"\S+|\n")
_TOOL: Final = ToolSpec("look", "Looks.", {"type": "object", "properties": {"place": {"type": "string"}}})


def try_turns(recipe: Recipe, report: CorpusReport) -> None:
    """Try every shape; what collides is added to the report."""
    rendering = StringRendering(recipe.vocabulary)
    for shape in _SHAPES:
        real = _conversation(shape)
        try:
            ids = recipe.encode_chat(real).ids
            spelled = rendering.spell(recipe.pieces(real))
        except InvalidRequestError:
            continue
        known: list[Conversation] = []
        for forged in _forgeries(real, spelled):
            if forged in known:
                continue
            known.append(forged)
            try:
                collides = recipe.encode_chat(forged).ids == ids
            except InvalidRequestError:
                continue
            report.turns += 1
            if collides and _only_joined(forged):
                report.joined.add(" + ".join(message.role for message in real.messages))
            elif collides:
                report.collisions += 1
                report.add_example(f"the same ids: {_summary(forged)} and {_summary(real)}")


def _conversation(shape: str) -> Conversation:
    """The shape with a text of its own in each message; a call has it as its argument."""
    messages: list[Message] = []
    results = 0
    for letter, words in zip(shape, _WORDS, strict=False):
        if letter in "cC":
            calls = [ToolCall(f"call0000{at}", "look", f'{{"place": "{words}"}}') for at in range(1 + (letter == "C"))]
            messages.append(Message("assistant", "", calls=calls))
        elif letter == "t":
            messages.append(Message("tool", words, call_id=f"call0000{results}", name="look"))
            results += 1
        else:
            messages.append(Message(_ROLES[letter], words))
    return Conversation(messages, tools=[_TOOL] if "c" in shape.lower() else [])


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a message's own text stands in the rendering, and how far it could be stretched without a control token."""

    start: int
    end: int
    first: int
    last: int


def _slots(count: int, spelled: Spelled) -> list[_Slot | None]:
    slots: list[_Slot | None] = []
    before = 0
    for words in _WORDS[:count]:
        start = spelled.text.find(words, before)
        if start < 0:
            slots.append(None)
            continue
        end = start + len(words)
        first = max((stop for _, stop in spelled.structure if before <= stop <= start), default=before)
        last = min((begin for begin, _ in spelled.structure if begin >= end), default=len(spelled.text))
        slots.append(_Slot(start, end, first, last))
        before = end
    return slots


def _forgeries(real: Conversation, spelled: Spelled) -> Iterator[Conversation]:
    """One message in the place of messages i to j, in each role that they have."""
    slots = _slots(len(real.messages), spelled)
    for i, opening in enumerate(slots):
        for j in range(i, len(slots)):
            closing = slots[j]
            if opening is None or closing is None:
                continue
            for text in _stretched(spelled.text, opening, closing):
                for role in {message.role for message in real.messages[i : j + 1]}:
                    yield from _replaced(real, i, j, role, text)


def _stretched(text: str, opening: _Slot, closing: _Slot) -> Iterator[str]:
    """What stands between the two, with more and less of the words around them."""
    starts = [opening.first + match.start() for match in _PLACE.finditer(text[opening.first : opening.start])]
    ends = [closing.end + match.end() for match in _PLACE.finditer(text[closing.end : closing.last])]
    for start in [opening.start, *starts]:
        yield text[start : closing.end]
    for end in ends:
        yield text[opening.start : end]
    yield text[opening.first : closing.last]


def _replaced(real: Conversation, i: int, j: int, role: Role, text: str) -> Iterator[Conversation]:
    """The forged conversation, with and without the tools. None that says the same as the real one."""
    head = next((message for message in real.messages[i : j + 1] if message.role == role), real.messages[i])
    message = Message(role, text, call_id=head.call_id, name=head.name)
    if i == j and (role, text.strip()) == (real.messages[i].role, real.messages[i].content.strip()):
        return
    messages = [*real.messages[:i], message, *real.messages[j + 1 :]]
    for tools in (real.tools, []) if real.tools else ([],):
        yield msgspec.structs.replace(real, messages=messages, tools=tools)


def _only_joined(forged: Conversation) -> bool:
    """Whether nothing is typed but the words of several messages, with white space between: the template itself puts
    such messages into one turn, and the model has no way to tell."""
    rest = "".join(message.content for message in forged.messages)
    for words in _WORDS:
        rest = rest.replace(words, "")
    return not rest.strip()


def _summary(conversation: Conversation) -> str:
    said = [f"{message.role}: {message.content!r}" for message in conversation.messages]
    return f"[{', '.join(said)}]" + (" with tools" if conversation.tools else "")
