"""The messages of Anthropic's protocol → a conversation, and the way back from a place in it to one in the request.

Turns of one role in a row become one, as Anthropic documents; a user's tool results become messages of their own.
Blocks of an assistant's text are one text, since an answer's text comes in several blocks when calls or thinking
divide it; the order of text and calls is the template's then, unless the answer is recognised as the server's own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from forebay.api.anthropic_blocks import (
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from forebay.api.anthropic_types import AnthropicMessage, PromptFields
from forebay.api.billing import without_billing_line
from forebay.core.errors import InvalidRequestError
from forebay.recipe import Message, ToolCall
from forebay.recipe.conversation import Role

Path = tuple[str | int, ...]
AnyBlock = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock

_BLOCKS_OF: Final = {
    "system": (TextBlock,),
    "user": (TextBlock, ToolResultBlock),
    "assistant": (TextBlock, ThinkingBlock, RedactedThinkingBlock, ToolUseBlock),
}
ERROR_LINE: Final = "Error:"
"""The line before a result that is an error: no template has a place for that."""


@dataclass(slots=True)
class Turn:
    """A message in the making, and where each of its parts stands in the request."""

    role: Role
    place: Path
    texts: list[str] = field(default_factory=list)
    text_places: list[Path] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    reasoning_place: Path = ()
    calls: list[ToolCall] = field(default_factory=list)
    call_places: list[Path] = field(default_factory=list)
    call_id: str = ""

    def add_text(self, text: str, place: Path) -> None:
        """One more text."""
        self.texts.append(text)
        self.text_places.append(place)

    def message(self) -> Message:
        """The message."""
        text: str | list[str] = self.texts
        if self.role == "assistant" or len(self.texts) < 2:
            text = "".join(self.texts)
        return Message(self.role, text, "".join(self.reasoning), self.calls, self.call_id)


def turns_of(body: PromptFields) -> list[Turn]:
    """The turns of a request, in order. Raises InvalidRequestError for a block that its role can't have."""
    turns: list[Turn] = []
    if body.system:
        _add_system(turns, body.system)
    for index, message in enumerate(body.messages):
        place: Path = ("messages", index)
        _check_blocks(message, place)
        _add_content(turns, message.role, message.content, place)
    return turns


def _add_system(turns: list[Turn], system: str | Sequence[TextBlock]) -> None:
    """The instructions, without a client's billing line; no turn where nothing else is there."""
    if isinstance(system, str):
        texts: list[tuple[str, Path]] = [(system, ("system",))]
    else:
        texts = [(block.text, ("system", index, "text")) for index, block in enumerate(system)]
    first, place = texts[0]
    shown = without_billing_line(first)
    texts[:1] = [(shown, place)] if shown or shown == first else []
    for text, at in texts:
        _turn(turns, "system", ("system",)).add_text(text, at)


def _check_blocks(message: AnthropicMessage, place: Path) -> None:
    if isinstance(message.content, str):
        return
    for index, block in enumerate(message.content):
        if not isinstance(block, _BLOCKS_OF[message.role]):
            text = f"A message of role {message.role} can't hold content of type '{block.type}'."
            raise InvalidRequestError(text, dotted((*place, "content", index, "type")))


def _add_content(turns: list[Turn], role: Role, content: str | Sequence[AnyBlock], place: Path) -> None:
    """Put a message's content behind the turns there are."""
    inner = (*place, "content")
    if isinstance(content, str):
        _turn(turns, role, place).add_text(content, inner)
        return
    if not content:
        _turn(turns, role, place)
    for index, block in enumerate(content):
        if isinstance(block, ToolResultBlock):
            turns.append(_result(block, (*inner, index)))
        else:
            _add_block(_turn(turns, role, place), block, (*inner, index))


def _turn(turns: list[Turn], role: Role, place: Path) -> Turn:
    """The last turn, if it has this role; else a new one."""
    if not turns or turns[-1].role != role:
        turns.append(Turn(role, place))
    return turns[-1]


def _add_block(turn: Turn, block: AnyBlock, place: Path) -> None:
    if isinstance(block, TextBlock):
        turn.add_text(block.text, (*place, "text"))
    elif isinstance(block, ThinkingBlock):
        turn.reasoning.append(block.thinking)
        turn.reasoning_place = turn.reasoning_place or (*place, "thinking")
    elif isinstance(block, ToolUseBlock):
        turn.calls.append(ToolCall(block.id, block.name, _json(block.input, (*place, "input"))))
        turn.call_places.append(place)


def _result(block: ToolResultBlock, place: Path) -> Turn:
    turn = Turn("tool", place, call_id=block.tool_use_id)
    if block.is_error:
        turn.add_text(ERROR_LINE, (*place, "is_error"))
    inner = (*place, "content")
    if isinstance(block.content, str):
        turn.add_text(block.content, inner)
    for index, text in enumerate(block.content or () if not isinstance(block.content, str) else ()):
        turn.add_text(text.text, (*inner, index, "text"))
    return turn


def _json(value: dict[str, Any], place: Path) -> str:
    """The JSON text of a call's input. Raises InvalidRequestError for what JSON has no word for, or nested too deep."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        text = "The input holds a number that is not finite, or is nested too deep."
        raise InvalidRequestError(text, dotted(place)) from error


def dotted(path: Path) -> str:
    """A place as errors name it."""
    return ".".join(map(str, path))


def in_request(path: Sequence[str | int], turns: Sequence[Turn]) -> Path:
    """A place in the conversation, in the terms of Chat Completions, as a place in the request."""
    match tuple(path):
        case ("messages", int(index), *rest) if index < len(turns):
            return _in_turn(turns[index], rest)
        case ("tools", int(index), "function", "parameters", *rest):
            return ("tools", index, "input_schema", *rest)
        case ("tools", int(index), "function", *rest):
            return ("tools", index, *rest)
    return tuple(path)


def _in_turn(turn: Turn, rest: Sequence[str | int]) -> Path:
    place = turn.place
    match tuple(rest):
        case ("content", int(index), "text") if index < len(turn.text_places):
            place = turn.text_places[index]
        case ("content",) if len(turn.text_places) == 1:
            place = turn.text_places[0]
        case ("role",) if turn.role != "tool" and place != ("system",):
            place = (*place, "role")
        case ("reasoning_content",):
            place = turn.reasoning_place
        case ("tool_calls", int(index), *of_call) if index < len(turn.call_places):
            place = (*turn.call_places[index], *_OF_CALL.get(tuple(of_call), ()))
        case ("tool_call_id",):
            place = (*place, "tool_use_id")
    return place


_OF_CALL: Final[dict[tuple[str | int, ...], Path]] = {
    ("id",): ("id",),
    ("function", "name"): ("name",),
    ("function", "arguments"): ("input",),
}
