"""What a chat request says, free of any protocol's JSON, and what a message of each role may have.

Not the order of messages: that is `order.py`.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from forebay.core.errors import InvalidRequestError
from forebay.core.grammar import GrammarSpec
from forebay.core.prompt import Origin

Role = Literal["system", "user", "assistant", "tool"]
Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]

ORIGINS: Final[dict[str, Origin]] = {
    "system": Origin.SYSTEM,
    "user": Origin.USER,
    "assistant": Origin.ASSISTANT,
    "tool": Origin.TOOL,
}
"""The origin of a message's text, by its role."""

MAX_MESSAGES: Final = 4096
"""Bounds the work of a template, whose cost may grow faster than the text."""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool that is offered to the model. Its name, its description and every key and value of its schema are a
    client's text."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None
    """The JSON schema of the arguments, as sent; None when the client gave none."""


class ToolCall(msgspec.Struct, frozen=True):
    """A call in an assistant's message."""

    id: str
    name: str
    arguments: str
    """The JSON text of an object, as the model wrote it or the client sent it: never re-serialised by a template that
    takes text."""


class KeptAnswer(msgspec.Struct, frozen=True):
    """The token ids that this server's model produced for a message, without the one that ended it."""

    ids: list[int]
    body: int = 0
    """ids[:body] are the reasoning with its markers and the white space behind them, as far as the model wrote them (a
    prompt may have opened it); the rest is text and calls."""


class Message(msgspec.Struct, frozen=True):
    """One turn. `text` is plain text in one piece or in parts; parts are joined by line breaks."""

    role: Role
    text: str | list[str]
    reasoning: str = ""
    """An assistant's reasoning before the text."""
    calls: list[ToolCall] = []
    """An assistant's calls behind the text, in order."""
    call_id: str = ""
    """Of a tool message: the call that it answers."""
    name: str = ""
    """Of a tool message: the tool's name, where the protocol says it. Of a user's: the participant's."""
    kept: KeptAnswer | None = None
    """Set by the server only, for an assistant message that it recognised as its own answer (see `api/`)."""

    @property
    def content(self) -> str:
        """The whole text."""
        return self.text if isinstance(self.text, str) else "\n".join(self.text)

    @property
    def origin(self) -> Origin:
        """Who wrote the text."""
        return ORIGINS[self.role]


class Conversation(msgspec.Struct, frozen=True):
    """The messages in order, and what the request asks of the template."""

    messages: list[Message]
    tools: list[ToolSpec] = []
    """The tools that the template shall offer."""
    thinking: bool | None = None
    """Whether the model shall reason first, for templates that know such a switch; None leaves the template's
    default."""
    effort: Effort | None = None
    """How much to reason, for templates that have such a line; None leaves the template's default."""
    system_last: bool = False
    """Whether system messages may stand behind the message to answer, as in Anthropic's protocol."""
    answer_format: GrammarSpec | None = None
    """What the answer is held to, for templates that say so in words; others leave it to the grammar."""


def check_fields(conversation: Conversation) -> None:
    """Raise InvalidRequestError, with the field to blame, for what no template can serve."""
    messages = conversation.messages
    if not messages:
        raise InvalidRequestError("The conversation has no message; send at least one.", "messages")
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequestError(
            f"The conversation has {len(messages)} messages; at most {MAX_MESSAGES} are accepted.", "messages"
        )
    for index, message in enumerate(messages):
        _check_message(message, index)


def _check_message(message: Message, index: int) -> None:
    if message.role not in ORIGINS:
        known = ", ".join(ORIGINS)
        raise InvalidRequestError(f"{message.role!r} is not a role; known are {known}.", f"messages.{index}.role")
    if message.role != "assistant":
        for field, given in (("tool_calls", message.calls), ("reasoning_content", message.reasoning)):
            if given:
                raise InvalidRequestError(f"Only an assistant message can have {field}.", f"messages.{index}.{field}")
    if message.call_id and message.role != "tool":
        raise InvalidRequestError("Only a tool message can answer a call.", f"messages.{index}.tool_call_id")
