"""DeepSeek V3 and V3.1: control tokens for turns, the system message as bare text at the front.

Neither published template has a place for the tools on offer, so they are refused. V3.1's writes calls and results of a
history; V3's writes a single call without its end, so there they are refused too (`order.py`). Both move later system
messages to the front; that is refused as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from forebay.core.errors import InvalidRequestError
from forebay.core.prompt import Origin
from forebay.recipe.conversation import Conversation, Message, ToolCall
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.templates.answers import kept_or
from forebay.recipe.templates.json_text import respaced
from forebay.recipe.vocabulary import Vocabulary

_SPACE: Final = "\u2581"


@dataclass(frozen=True, slots=True)
class DeepSeekV3:
    """V3, or with a token for reasoning V3.1, whose answers begin with reasoning that may be empty."""

    name: str
    bos: int
    eos: int
    user: int
    assistant: int
    reasoning: tuple[int, int] | None
    tools: dict[str, int]
    """The tokens around calls and results, by their names."""

    @classmethod
    def of(cls, vocabulary: Vocabulary, name: str, *, reasons: bool) -> DeepSeekV3:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        control = vocabulary.control_id
        bos, eos = control(_token("begin of sentence")), control(_token("end of sentence"))
        user, assistant = control(_token("User")), control(_token("Assistant"))
        reasoning = (control("<think>"), control("</think>")) if reasons else None
        names = ("calls begin", "calls end", "call begin", "call end", "sep", "output begin", "output end")
        return cls(
            name, bos, eos, user, assistant, reasoning, {each: control(_token(f"tool {each}")) for each in names}
        )

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation, and the head of the assistant's turn; with `continue_final` its last message stays open.

        Raises InvalidRequestError for tools on offer.
        """
        if conversation.tools:
            raise InvalidRequestError("This model's chat template has no place for tools.", "tools")
        messages = conversation.messages
        yield Control(self.bos)
        systems = [message for message in messages if message.role == "system"]
        for at, message in enumerate(systems):
            yield from (Words("\n\n" if at else ""), Text(message.content, Origin.SYSTEM))
        before = ""
        for at, message in enumerate(messages):
            if message.role == "system":
                continue
            if message.role == "user":
                yield from (Control(self.user), Text(message.content, Origin.USER))
            elif message.role == "tool":
                yield from self._between("output", [Text(message.content, Origin.TOOL)])
            else:
                yield from self._answer(message, before, final=continue_final and at == len(messages) - 1)
            before = message.role
        if not continue_final and before != "tool":
            yield Control(self.assistant)
            yield from self._no_reasoning(is_open=bool(conversation.thinking))

    def _answer(self, message: Message, before: str, *, final: bool) -> Iterator[Piece]:
        if before == "user" or self.reasoning is None:
            yield Control(self.assistant)
            yield from self._no_reasoning()
        yield from kept_or(message, self._written(message, before), reasoning=False)
        if not final:
            yield Control(self.eos)

    def _written(self, message: Message, before: str) -> Iterator[Piece]:
        text = message.content
        if self.reasoning is not None and before != "tool" and not message.calls:
            text = text.partition("</think>")[2] if "</think>" in text else text
        yield Text(text, Origin.ASSISTANT)
        if message.calls:
            yield from self._between("calls", [piece for call in message.calls for piece in self._call(call)])

    def _call(self, call: ToolCall) -> Iterator[Piece]:
        name, arguments = Text(call.name, Origin.ASSISTANT), Text(respaced(call.arguments), Origin.ASSISTANT)
        yield from self._between("call", [name, Control(self.tools["sep"]), arguments])

    def _between(self, name: str, inner: list[Piece]) -> Iterator[Piece]:
        yield from (Control(self.tools[f"{name} begin"]), *inner, Control(self.tools[f"{name} end"]))

    def _no_reasoning(self, *, is_open: bool = False) -> Iterator[Piece]:
        """The place of an answer's reasoning, empty or to be filled."""
        if self.reasoning is not None:
            begin, end = self.reasoning
            yield from (Control(each) for each in ((begin,) if is_open else (begin, end)))


def _token(name: str) -> str:
    return f"<\uff5c{name.replace(' ', _SPACE)}\uff5c>"
