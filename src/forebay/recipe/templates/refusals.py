"""What a typed template says when a conversation asks for something that the model's format doesn't have."""

from __future__ import annotations

from collections.abc import Iterable

from forebay.core.errors import ConversationError, InvalidRequestError
from forebay.recipe.conversation import Conversation, Message


def refuse_tools(conversation: Conversation, reason: str | None = None) -> None:
    """Raise InvalidRequestError when tools, calls or results are there; `reason` where it is not the usual one."""
    said = reason or "This model's chat template has no place for tools."
    if conversation.tools:
        raise InvalidRequestError(said, "tools")
    for index, message in enumerate(conversation.messages):
        if message.calls:
            raise InvalidRequestError(said, f"messages.{index}.tool_calls")
        if message.role == "tool":
            raise InvalidRequestError(said, f"messages.{index}.role")


def check_turns(
    turns: Iterable[tuple[int, Message]], *, system: bool = False, question_behind_results: bool = False
) -> None:
    """Raise ConversationError when questions and answers don't take turns. Results, and messages that are calls, are
    not counted.

    Args:
        turns: the messages, without a first system message, with their places in the conversation.
        system: whether further system messages may stand in the place of answers, as a published template has it.
        question_behind_results: whether a question may follow results where an answer is due.
    """
    answer_due = False
    behind_results = False
    for index, message in turns:
        skips = question_behind_results and behind_results and message.role == "user"
        behind_results = message.role == "tool"
        if behind_results or message.calls:
            continue
        due = "assistant" if answer_due and not skips else "user"
        if message.role != due and not (system and message.role == "system" and answer_due):
            raise ConversationError(
                f"This model takes questions and answers in turns: here a message of role {due} is due, "
                f"not {message.role}.",
                ("messages", index, "role"),
            )
        answer_due = due == "user"
