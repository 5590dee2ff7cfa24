"""What a chat request says, free of any protocol's JSON, and the checks that hold for every model.

Not a template: which roles may follow each other is each template's own rule (`templates/`), raised with the same
error.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from forebay.core.errors import InvalidRequestError
from forebay.core.prompt import Origin

Role = Literal["system", "user", "assistant", "tool"]

ORIGINS: Final[dict[str, Origin]] = {
    "system": Origin.SYSTEM,
    "user": Origin.USER,
    "assistant": Origin.ASSISTANT,
    "tool": Origin.TOOL,
}
"""The origin of a message's text, by its role."""

MAX_MESSAGES: Final = 4096
"""Bounds the work of a template, whose cost may grow faster than the text."""


class Message(msgspec.Struct, frozen=True):
    """One turn. `text` is plain text in one piece or in parts; parts are joined by line breaks."""

    role: Role
    text: str | list[str]

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
    thinking: bool | None = None
    """Whether the model shall reason first, for templates that know such a switch; None leaves the template's
    default."""


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
