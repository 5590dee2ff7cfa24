"""Which roles may follow which: one table for each template, and the rules for calls and their results.

It is checked before anything is encoded. What a template can't render for another reason, it says itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from forebay.core.errors import ConversationError, InvalidRequestError
from forebay.recipe.conversation import Conversation, Message, Role, ToolCall
from forebay.recipe.templates.refusals import refuse_tools


class SystemPlace(Enum):
    """Where system messages may stand."""

    NOWHERE = "nowhere"
    FIRST = "first"
    """One, before everything else."""
    ANYWHERE = "anywhere"
    """Any number, but not last. Between other messages they change nothing about which may follow which."""


@dataclass(frozen=True, slots=True)
class RoleOrder:
    """One template's table."""

    system: SystemPlace = SystemPlace.ANYWHERE
    questions_in_a_row: bool = True
    """Whether a user message may follow another one."""
    question_behind_results: bool = True
    """Whether a user message may follow tool results, with no answer between them."""
    tools: bool = True
    """Whether tools, calls and results can be rendered at all."""
    names: bool = False
    """Whether a participant's name can be."""

    def after(self, role: Role | None) -> frozenset[Role]:
        """The roles that may follow, system messages aside; None is the beginning."""
        following: set[Role] = {"user"}
        if role == "user":
            following = {"user", "assistant"} if self.questions_in_a_row else {"assistant"}
        elif role == "assistant":
            following = {"user", "tool"}
        elif role == "tool":
            following = {"tool", "assistant", "user"} if self.question_behind_results else {"tool", "assistant"}
        return frozenset(following)


_TURNS: Final = RoleOrder(SystemPlace.FIRST, questions_in_a_row=False, question_behind_results=False)
_ORDERS: Final[dict[str, RoleOrder]] = {
    "deepseek-v3": RoleOrder(SystemPlace.FIRST, tools=False),
    "deepseek-v3.1": RoleOrder(SystemPlace.FIRST),
    "llama2": RoleOrder(SystemPlace.FIRST, questions_in_a_row=False, tools=False),
    "mistral": _TURNS,
    "gemma": RoleOrder(SystemPlace.FIRST, questions_in_a_row=False),
    "gemma2": RoleOrder(SystemPlace.NOWHERE, questions_in_a_row=False),
}
"""By the beginning of a template's name; all others render any sequence of turns as it comes."""
OPEN: Final = RoleOrder()


def order_of(template_name: str) -> RoleOrder:
    """The table of a typed template."""
    return next((_ORDERS[name] for name in sorted(_ORDERS, reverse=True) if template_name.startswith(name)), OPEN)


def check_order(order: RoleOrder, conversation: Conversation, *, continue_final: bool) -> None:
    """Raise ConversationError where a message is out of order, InvalidRequestError for tools and names that can't
    be rendered.

    The last message has to be the one to answer (a user's or a tool's), or with `continue_final` the assistant's own
    beginning; with `system_last` system messages may stand behind it.
    """
    messages = conversation.messages
    if not order.tools:
        refuse_tools(conversation)
    count = len(messages)
    while conversation.system_last and count > 1 and messages[count - 1].role == "system":
        count -= 1
    _check_last(messages[:count], continue_final=continue_final)
    before: Role | None = None
    open_calls = _OpenCalls()
    for index, message in enumerate(messages):
        if message.name and message.role != "tool" and not order.names:
            raise InvalidRequestError(
                "This model's chat template has no place for a participant's name.", f"messages.{index}.name"
            )
        if message.role == "system":
            _check_system(order, messages, index)
            continue
        if message.role != "tool":
            open_calls.close()
        _check_follows(order, before, message.role, index)
        if message.role == "tool":
            open_calls.answer(message, index)
        elif message.calls:
            open_calls = _OpenCalls(message.calls, index)
        before = message.role
    if not continue_final:
        open_calls.close()


def _check_last(messages: list[Message], *, continue_final: bool) -> None:
    last = messages[-1].role
    path: tuple[str | int, ...] = ("messages", len(messages) - 1, "role")
    if continue_final and last != "assistant":
        raise ConversationError(f"Only an assistant message can be continued, but the last one's role is {last}.", path)
    if not continue_final and last == "assistant":
        raise ConversationError("The last message is the assistant's own, so there is nothing to answer.", path)
    if continue_final and messages[-1].calls:
        raise ConversationError("A message with tool calls is complete, so it can't be continued.", path[:2])
    if last == "system":
        raise ConversationError("The last message is a system message, so there is nothing to answer.", path)


def _check_system(order: RoleOrder, messages: list[Message], index: int) -> None:
    path = ("messages", index, "role")
    if order.system is SystemPlace.NOWHERE:
        raise ConversationError("This model's chat template has no place for a system message.", path)
    if order.system is SystemPlace.FIRST and index > 0:
        raise ConversationError("This model takes a system message only as the first message.", path)


def _check_follows(order: RoleOrder, before: Role | None, role: Role, index: int) -> None:
    allowed = order.after(before)
    if role in allowed:
        return
    path = ("messages", index, "role")
    if role == "tool":
        raise ConversationError("A tool message has to follow the assistant message whose call it answers.", path)
    due = " or ".join(sorted(allowed - {"tool"}))
    place = "at the beginning" if before is None else f"behind a message of role {before}"
    raise ConversationError(f"{place.capitalize()} a message of role {due} is due, not {role}.", path)


class _OpenCalls:
    """The calls of the last assistant message that have no result yet."""

    def __init__(self, calls: list[ToolCall] | None = None, index: int = 0) -> None:
        self._calls = dict(enumerate(calls or []))
        self._index = index

    def answer(self, message: Message, index: int) -> None:
        """Take one result: of the call that it names, else of the first that is open. Raises ConversationError."""
        place = next((at for at, call in self._calls.items() if message.call_id in ("", call.id)), None)
        if place is None:
            said = f"of id {message.call_id!r} " if message.call_id else ""
            raise ConversationError(
                f"No call {said}of the assistant message before is left for this result to answer.",
                ("messages", index, "tool_call_id" if message.call_id else "role"),
            )
        call = self._calls.pop(place)
        if message.name not in ("", call.name):
            raise ConversationError(
                f"The result is named {message.name!r}, but the call that it answers is of {call.name!r}.",
                ("messages", index, "name"),
            )

    def close(self) -> None:
        """The next turn begins. Raises ConversationError when a call has no result."""
        for place, call in self._calls.items():
            raise ConversationError(
                f"The call of {call.name!r} has no result: a tool message with its id has to follow.",
                ("messages", self._index, "tool_calls", place),
            )
