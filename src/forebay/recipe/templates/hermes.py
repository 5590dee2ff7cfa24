"""Tools as Hermes and Qwen have them, within ChatML: functions as JSON lines in the system message, a call as JSON
between `<tool_call>` tags, results in a user's turn between `<tool_response>` tags.

Where a vocabulary has a tag as a token it goes in by id; else it is plain text, and `delimiters.py` keeps a typed one
apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from forebay.core.prompt import Origin
from forebay.recipe.conversation import Message, ToolCall, ToolSpec
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.templates.json_text import inner, respaced, tool_object, written
from forebay.recipe.templates.spelled import Speller

_BEFORE: Final = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_BEHIND: Final = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call>"
)


@dataclass(frozen=True, slots=True)
class HermesTools:
    """The three parts, for one vocabulary."""

    speller: Speller

    def offered(self, tools: Sequence[ToolSpec]) -> Iterator[Piece]:
        """What the system message says of the tools."""
        yield from self.speller.pieces(_BEFORE)
        for tool in tools:
            yield from (Words("\n"), Text(written(tool_object(tool)), Origin.SYSTEM))
        yield from self.speller.pieces(_BEHIND)

    def calls(self, calls: Sequence[ToolCall]) -> Iterator[Piece]:
        """An assistant's calls, a line break between two."""
        for place, call in enumerate(calls):
            yield from self.speller.pieces('\n<tool_call>\n{"name": "' if place else '<tool_call>\n{"name": "')
            yield Text(inner(call.name), Origin.ASSISTANT)
            yield from (Words('", "arguments": '), Text(respaced(call.arguments), Origin.ASSISTANT))
            yield from self.speller.pieces("}\n</tool_call>")

    def result(self, message: Message) -> Iterator[Piece]:
        """One result, which begins on a line of its own."""
        yield from self.speller.pieces("\n<tool_response>\n")
        yield Text(message.content, message.origin)
        yield from self.speller.pieces("\n</tool_response>")


def opens_results(messages: Sequence[Message], at: int) -> bool:
    """Whether this result is the first of several in a row, which share a turn."""
    return at == 0 or messages[at - 1].role != "tool"


def closes_results(messages: Sequence[Message], at: int) -> bool:
    """Whether this result is the last of its turn."""
    return at == len(messages) - 1 or messages[at + 1].role != "tool"


def turn_of(messages: Sequence[Message], at: int, tools: HermesTools, start: int, end: int) -> Iterator[Piece]:
    """A result, with the head and the end of the user's turn that it shares with its neighbours."""
    if opens_results(messages, at):
        yield from (Control(start), Words("user"))
    yield from tools.result(messages[at])
    if closes_results(messages, at):
        yield from (Control(end), Words("\n"))
