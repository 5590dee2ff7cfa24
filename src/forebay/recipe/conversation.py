"""What a chat request says, free of any protocol's JSON, and the checks that hold for every model.

Not a template: which roles may follow each other is each template's own rule (`templates/`), raised with the same
error.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from forebay.core.errors import InvalidRequestError
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


def check_conversation(conversation: Conversation, *, continue_final: bool) -> None:
    """Raise InvalidRequestError, with the field to blame, for what no template can serve.

    The last message has to be the one to answer, or with `continue_final` the assistant's own beginning.
    """
    messages = conversation.messages
    if not messages:
        raise InvalidRequestError("The conversation has no message; send at least one.", "messages")
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequestError(
            f"The conversation has {len(messages)} messages; at most {MAX_MESSAGES} are accepted.", "messages"
        )
    for index, message in enumerate(messages):
        _check_message(message, index)
    last = messages[-1].role
    param = f"messages.{len(messages) - 1}.role"
    if continue_final and last != "assistant":
        raise InvalidRequestError(
            f"Only an assistant message can be continued, but the last one's role is {last}.", param
        )
    if not continue_final and last == "assistant":
        raise InvalidRequestError("The last message is the assistant's own, so there is nothing to answer.", param)
    if last == "system":
        raise InvalidRequestError("The last message is a system message, so there is nothing to answer.", param)


def _check_message(message: Message, index: int) -> None:
    if message.role not in ORIGINS:
        known = ", ".join(ORIGINS)
        raise InvalidRequestError(f"{message.role!r} is not a role; known are {known}.", f"messages.{index}.role")
    if message.role == "tool":
        raise InvalidRequestError("Tool messages are not supported yet.", f"messages.{index}.role")
    try:
        message.content.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            "The text holds a lone surrogate, which is not a character.", f"messages.{index}.content"
        ) from error
