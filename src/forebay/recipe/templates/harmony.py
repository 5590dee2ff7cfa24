"""Harmony, the format of gpt-oss: every message has a header that names its author, its channel and whom it is for.

There are two spellings. The published Jinja template writes a tool's result as a JSON string and the text before a call
as reasoning; OpenAI's `openai-harmony` writes both as they are. Where the model has that template, it is followed;
where it has none, the library is. Reasoning is shown up to the call that it led to, and dropped once a final answer
follows. What the published template drops or refuses of a message with calls (further calls, text beside reasoning) is
written here as the library does.

All structure is control tokens but `namespace functions {` and its end, which keep their characters when typed but
never get the ids of the real ones. The tools' texts are one author's, and are not told from each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from forebay.core.errors import ConversationError
from forebay.core.prompt import Origin
from forebay.recipe.conversation import Conversation, Effort, Message, ToolCall
from forebay.recipe.pieces import Control, Kept, Piece, Text, Words
from forebay.recipe.templates import harmony_published, harmony_types
from forebay.recipe.templates.json_text import respaced, written
from forebay.recipe.vocabulary import Vocabulary

_EFFORTS: Final[dict[Effort, str]] = {"minimal": "low", "low": "low", "high": "high", "xhigh": "high", "max": "high"}
"""Every other effort, and none, is medium."""
_OPENING: Final = "namespace functions {"
_CLOSING: Final = "} // namespace functions"


@dataclass(frozen=True, slots=True)
class Harmony:
    """One spelling, bound to a vocabulary."""

    start: int
    channel: int
    message: int
    end: int
    call: int
    constrain: int
    analysis: tuple[int, ...]
    """The ids of the channel's name."""
    now: Callable[[], datetime]
    published: bool = False
    """Spell as the published template does."""
    name: ClassVar[str] = "harmony"
    delimiters: ClassVar[tuple[str, ...]] = (_OPENING, _CLOSING)

    @classmethod
    def of(cls, vocabulary: Vocabulary, now: Callable[[], datetime], *, published: bool = False) -> Harmony:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        control = vocabulary.control_id
        header = control("<|start|>"), control("<|channel|>"), control("<|message|>")
        ends = control("<|end|>"), control("<|call|>")
        return cls(*header, *ends, control("<|constrain|>"), tuple(vocabulary.plain_ids("analysis")), now, published)

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation, and the head of the assistant's turn; with `continue_final` its last message stays open.

        Raises ConversationError for a system message where the published template has no place for it.
        """
        messages = conversation.messages
        yield from self._said("system", self._system(conversation))
        first = messages[0] if messages[0].role == "system" else None
        if conversation.tools or (first is not None and first.content):
            yield from self._said("developer", self._developer(first, conversation))
        answered = max((at for at, each in enumerate(messages) if _is_final(each)), default=-1)
        calls: list[ToolCall] = []
        for at in range(first is not None, len(messages)):
            each = messages[at]
            if each.role == "assistant":
                final = continue_final and at == len(messages) - 1
                yield from self._open(each) if final else self._answer(each, shown=at > answered)
                calls = list(each.calls)
            elif each.role == "tool":
                yield from self._result(each, calls)
            elif each.role == "system":
                yield from self._later_system(each, at)
            else:
                yield from self._said("user", [Text(each.content, Origin.USER)])
        if not continue_final:
            yield from self._head("assistant")

    def _system(self, conversation: Conversation) -> Iterator[Piece]:
        yield Words(
            "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n"
            f"Current date: {self.now():%Y-%m-%d}\n\nReasoning: {_effort(conversation)}\n\n"
            "# Valid channels: analysis, commentary, final. Channel must be included for every message."
        )
        if conversation.tools:
            yield Words("\nCalls to these tools must go to the commentary channel: 'functions'.")

    def _developer(self, system: Message | None, conversation: Conversation) -> Iterator[Piece]:
        """The client's system message, and the tools."""
        if system is not None and system.content:
            yield from (Words("# Instructions\n\n"), Text(system.content, Origin.SYSTEM))
            yield Words("\n\n" if conversation.tools or self.published else "")
        if conversation.tools:
            yield Words(f"# Tools\n\n## functions\n\n{_OPENING}\n\n")
            write = harmony_published.signature if self.published else harmony_types.signature
            for tool in conversation.tools:
                # The template's own, so that the line break before them joins them in one token, as in training.
                text = write(tool)
                slashes = "//" if text.startswith("//") else ""
                yield from (Words(slashes), Text(text.removeprefix(slashes), Origin.SYSTEM))
            yield Words(_CLOSING)

    def _later_system(self, message: Message, at: int) -> Iterator[Piece]:
        """A system message between turns."""
        if self.published:
            said = "This model's chat template takes a system message only as the first message."
            raise ConversationError(said, ("messages", at, "role"))
        yield from self._said("developer", [Words("# Instructions\n\n"), Text(message.content, Origin.SYSTEM)])

    def _answer(self, message: Message, *, shown: bool) -> Iterator[Piece]:
        """An assistant's messages. `shown`: with the reasoning that led to them."""
        if message.kept is not None:
            yield from self._kept(message.kept.ids, shown=shown)
            yield Control(self.call if message.calls else self.end)
            return
        if not message.calls:
            yield from self._said("assistant", [Text(message.content, Origin.ASSISTANT)], "final")
            return
        yield from self._before_calls(message, shown=shown)
        for call in message.calls:
            yield from self._call(call)

    def _before_calls(self, message: Message, *, shown: bool) -> Iterator[Piece]:
        reasoning, text = message.reasoning, message.content
        if self.published and not reasoning:
            reasoning, text = text, ""
        if reasoning and shown:
            yield from self._said("assistant", [Text(reasoning, Origin.ASSISTANT)], "analysis")
        if text:
            yield from self._said("assistant", [Text(text, Origin.ASSISTANT)], "commentary")

    def _call(self, call: ToolCall) -> Iterator[Piece]:
        yield from (Control(self.start), Words("assistant to=functions."), Text(call.name, Origin.ASSISTANT))
        yield from (Control(self.channel), Words("commentary "))
        yield from () if self.published else (Control(self.constrain),)
        arguments = respaced(call.arguments) if self.published else call.arguments
        yield from (Words("json"), Control(self.message), Text(arguments, Origin.ASSISTANT), Control(self.call))

    def _result(self, message: Message, calls: list[ToolCall]) -> Iterator[Piece]:
        """A tool's message. The call that it answers is taken from `calls`."""
        place = next((at for at, call in enumerate(calls) if message.call_id in ("", call.id)), None)
        name = message.name if place is None else calls.pop(place).name
        yield from (Control(self.start), Words("functions."), Text(name, Origin.ASSISTANT), Words(" to=assistant"))
        text = written(message.content) if self.published else message.content
        yield from self._body([Text(text, Origin.TOOL)], "commentary")

    def _open(self, message: Message) -> Iterator[Piece]:
        """The last message, to be continued."""
        yield from self._head("assistant")
        if message.kept is not None:
            yield Kept(tuple(message.kept.ids))
            return
        if message.reasoning:
            yield from (Control(self.channel), Words("analysis"), Control(self.message))
            yield Text(message.reasoning, Origin.ASSISTANT)
        if message.reasoning and message.content:
            yield Control(self.end)
            yield from self._head("assistant")
        if message.content:
            yield from (Control(self.channel), Words("final"), Control(self.message))
            yield Text(message.content, Origin.ASSISTANT)

    def _kept(self, ids: Sequence[int], *, shown: bool) -> Iterator[Piece]:
        """The messages of an answer as the model wrote them, without those of reasoning unless they are `shown`.

        The first one's start, and the last one's end, are not among the ids.
        """
        starts = [0, *(at for at, token in enumerate(ids) if token == self.start and at > 0)]
        parts = [tuple(ids[start:end]) for start, end in zip(starts, [*starts[1:], len(ids)], strict=True)]
        kept = [part for part in parts if shown or not self._is_analysis(part)]
        for part in kept:
            if part[:1] != (self.start,):
                yield from self._head("assistant")
            yield Kept(part)

    def _is_analysis(self, part: tuple[int, ...]) -> bool:
        head = (self.channel, *self.analysis, self.message)
        return any(part[at : at + len(head)] == head for at in range(min(len(part), 3)))

    def _said(self, author: str, text: Iterable[Piece], channel: str | None = None) -> Iterator[Piece]:
        yield from self._head(author)
        yield from self._body(text, channel)

    def _head(self, author: str) -> Iterator[Piece]:
        yield from (Control(self.start), Words(author))

    def _body(self, text: Iterable[Piece], channel: str | None) -> Iterator[Piece]:
        if channel is not None:
            yield from (Control(self.channel), Words(channel))
        yield Control(self.message)
        yield from text
        yield Control(self.end)


def _effort(conversation: Conversation) -> str:
    """The model always reasons; one that shall not is asked to do so least."""
    if conversation.effort is None:
        return "low" if conversation.thinking is False else "medium"
    return _EFFORTS.get(conversation.effort, "medium")


def _is_final(message: Message) -> bool:
    return message.role == "assistant" and not message.calls
