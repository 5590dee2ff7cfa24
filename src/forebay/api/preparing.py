"""What has to be done before a request can run: an `Ask` becomes a `Prepared`.

That is the prompt's ids, the grammar of the answer, and how it will be read. It decides nothing about sampling and runs
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from forebay.api.answer_store import HistoryKey
from forebay.api.asking import Ask, Path, Prepared, param_of, path_of
from forebay.api.holding import compiled, grammar_of
from forebay.api.keeping import KeptAnswers
from forebay.api.ports import RecipePort
from forebay.core.errors import ConversationError, InvalidRequestError
from forebay.recipe import Conversation, ToolSpec
from forebay.recipe.parsers import Tool, ToolFormat

INLINE_CHARS = 4096
"""Texts up to this length are encoded, and ids decoded, in the event loop (a millisecond); longer ones in a thread."""


async def prepare(ask: Ask, recipe: RecipePort, answers: KeptAnswers) -> Prepared:
    """Encode the conversation and check what the answer shall be, without holding up the event loop.

    Raises InvalidRequestError in the terms of the request, ConversationError for roles that are out of order and, where
    they are refused, for markers.
    """
    tools = _shown(ask)
    try:
        conversation = msgspec.structs.replace(
            ask.conversation, tools=tools, thinking=_thinking(ask, recipe), answer_format=ask.format
        )
        encoded = await _encoded(conversation, recipe, ask, answers)
    except InvalidRequestError as error:
        raise _in_request(error, ask.locate) from error
    ids = encoded.ids
    grammar = grammar_of(ask, tools, recipe)
    if grammar is not None or ask.reasoning_budget is not None:
        grammar = await asyncio.to_thread(compiled, grammar, ask, tools, recipe, ids)
    return Prepared(
        ids=ids,
        grammar=grammar,
        tools=[Tool(tool.name, _required(tool)) for tool in tools] or None,
        continued=ask.continue_final,
        conversation=encoded.conversation,
        answers=answers,
        history=encoded.history,
    )


def _in_request(error: InvalidRequestError, locate: Callable[[Path], Path]) -> InvalidRequestError:
    """The error, with its place in the request."""
    if isinstance(error, ConversationError):
        return ConversationError(error.message, locate(error.path), offset=error.offset, marker=error.marker)
    if error.param is None:
        return error
    return InvalidRequestError(error.message, param_of(locate(path_of(error.param))))


@dataclass(frozen=True, slots=True)
class _Encoded:
    conversation: Conversation
    """With what is kept of it."""
    history: HistoryKey
    ids: list[int]


async def _encoded(conversation: Conversation, recipe: RecipePort, ask: Ask, answers: KeptAnswers) -> _Encoded:
    """The ids of a conversation; a long one is looked at in a thread."""

    def encode() -> _Encoded:
        known, history = answers.recognise(conversation)
        if ask.strict_markers:
            recipe.check_markers(known)
        ids = recipe.encode_chat(known, continue_final=ask.continue_final).ids
        _check_names(known, recipe, ask, ids)
        return _Encoded(known, history, ids)

    if _size(conversation) <= INLINE_CHARS:
        return encode()
    return await asyncio.to_thread(encode)


def _size(conversation: Conversation) -> int:
    """Characters, about; a tool's schema counts as a thousand."""
    messages = sum(len(m.content) + sum(len(call.arguments) for call in m.calls) for m in conversation.messages)
    return messages + sum(len(tool.description) + 1000 for tool in conversation.tools)


def _check_names(conversation: Conversation, recipe: RecipePort, ask: Ask, ids: list[int]) -> None:
    """Raise InvalidRequestError for participants' names of which the prompt says nothing."""
    named = [index for index, message in enumerate(conversation.messages) if message.name and message.role != "tool"]
    if not named:
        return
    bare = [m if m.role == "tool" else msgspec.structs.replace(m, name="") for m in conversation.messages]
    unnamed = msgspec.structs.replace(conversation, messages=bare)
    if recipe.encode_chat(unnamed, continue_final=ask.continue_final).ids == ids:
        text = "This model's chat template has no place for a participant's name."
        raise InvalidRequestError(text, f"messages.{named[0]}.name")


def _shown(ask: Ask) -> list[ToolSpec]:
    """The tools that the model is shown. Raises InvalidRequestError for a choice among tools that there are not."""
    tools = ask.conversation.tools
    names = {tool.name for tool in tools}
    wanted = {ask.choice.name} if ask.choice.mode == "named" else ask.choice.allowed or set()
    for name in sorted(str(name) for name in wanted):
        if name not in names:
            raise InvalidRequestError(f"The tool '{name}' is not among those of 'tools'.", ask.choice_param)
    if ask.choice.mode == "required" and not tools:
        raise InvalidRequestError("A tool call is required, but 'tools' offers none.", ask.choice_param)
    return [] if ask.choice.mode == "none" else tools


def _thinking(ask: Ask, recipe: RecipePort) -> bool | None:
    """Whether to reason, where a wish for how much says it. Raises InvalidRequestError when the model can't at all."""
    wished = ask.conversation
    if wished.effort is None or wished.thinking is not None:
        return wished.thinking
    reasons = recipe.parsers.reasoning is not None or recipe.parsers.tool_format is ToolFormat.HARMONY
    if not reasons and not recipe.knows_thinking:
        raise InvalidRequestError("This model doesn't reason, so there is no effort to choose.", "reasoning_effort")
    return True if recipe.knows_thinking else wished.thinking


def _required(tool: ToolSpec) -> frozenset[str]:
    required = (tool.parameters or {}).get("required")
    return frozenset(name for name in required if isinstance(name, str)) if isinstance(required, list) else frozenset()
