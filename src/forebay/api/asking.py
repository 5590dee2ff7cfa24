"""What a request asks of an answer, free of any protocol, and what has to be done before it can run.

`prepare` turns an `Ask` into a `Prepared`: the prompt's ids, the grammar of the answer, and how it will be read. It
decides nothing about sampling and runs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from forebay.api.answer_store import HistoryKey
from forebay.api.grammars import schema_grammar
from forebay.api.keeping import AnswerRecord, KeptAnswers
from forebay.api.ports import RecipePort
from forebay.core.errors import ConversationError, InvalidRequestError
from forebay.core.grammar import GrammarSpec
from forebay.recipe import Conversation, ToolSpec
from forebay.recipe.grammar import GrammarTool, after_reasoning, answer_grammar, tool_grammar, within_budget
from forebay.recipe.parsers import Tool, ToolFormat

INLINE_CHARS = 4096
"""Texts up to this length are encoded, and ids decoded, in the event loop (a millisecond); longer ones in a thread."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the model may or has to call tools. With `none` the tools are not even shown to it."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None
    """Of `named`: the only tool that may be called."""
    allowed: frozenset[str] | None = None
    """The tools that may be called, of all that are shown; None allows all."""


Path = tuple[str | int, ...]
"""Keys and indexes that lead to a place in a request."""


def by_message(places: Sequence[str]) -> Callable[[Path], Path]:
    """For `Ask.locate`: where each message of the conversation stands in the request (`system`, `messages.2`).

    Of what is within a message, only `role` and `content` are the same in all protocols; else the message is named.
    """

    def locate(path: Path) -> Path:
        if path[:1] != ("messages",) or len(path) < 2 or not isinstance(path[1], int) or path[1] >= len(places):
            return path
        place = _path(places[path[1]])
        indexed = any(isinstance(step, int) for step in place)
        return (*place, *path[2:3]) if indexed and path[2:3] in (("role",), ("content",)) else place

    return locate


@dataclass(frozen=True, slots=True)
class Ask:
    """A conversation and what its answer shall be. Names fields in the request's own terms, for errors."""

    conversation: Conversation
    choice: ToolChoice = ToolChoice()
    parallel: bool = True
    """Whether an answer may have more than one call."""
    strict: frozenset[str] = frozenset()
    """Names of the tools whose arguments have to follow their schemas."""
    format: GrammarSpec | None = None
    """What the answer's text has to look like."""
    continue_final: bool = False
    """Go on with the last message, an assistant's, instead of answering it."""
    strict_markers: bool = False
    """Refuse the conversation when a text in it holds a marker."""
    reasoning_budget: int | None = None
    """Most tokens of reasoning; then it is ended for the model."""
    format_param: str = "response_format"
    choice_param: str = "tool_choice"
    locate: Callable[[Path], Path] = lambda path: path
    """Leads a path in the terms of Chat Completions (`"messages", 3, "content"` counts the conversation's messages) to
    the same place in the request: see `by_message`."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can run."""

    ids: list[int]
    """The prompt."""
    grammar: GrammarSpec | None
    tools: list[Tool] | None
    """The tools whose calls are looked for in the answer; None looks for none."""
    continued: bool
    """Whether the answer goes on behind text of the assistant."""
    conversation: Conversation
    """As it was encoded."""
    answers: KeptAnswers
    history: HistoryKey
    """Under which `answers` keeps an answer."""

    def record(self) -> AnswerRecord | None:
        """A new record of one choice; None where the choice is not a whole message."""
        return None if self.continued else AnswerRecord(self.answers, self.history)


async def prepare(ask: Ask, recipe: RecipePort, answers: KeptAnswers) -> Prepared:
    """Encode the conversation and check what the answer shall be, without holding up the event loop.

    Raises InvalidRequestError in the terms of the request, ConversationError for roles that are out of
    order and, where they are refused, for markers.
    """
    tools = _shown(ask)
    try:
        conversation = msgspec.structs.replace(
            ask.conversation, tools=tools, thinking=_thinking(ask, recipe), answer_format=ask.format
        )
        conversation, history = answers.recognise(conversation)
        ids = await _encode(conversation, recipe, ask)
    except InvalidRequestError as error:
        raise _in_request(error, ask.locate) from error
    grammar = _grammar(ask, tools, recipe)
    if grammar is not None or ask.reasoning_budget is not None:
        grammar = await asyncio.to_thread(_checked, grammar, ask, tools, recipe, ids)
    return Prepared(
        ids=ids,
        grammar=grammar,
        tools=[Tool(tool.name, _required(tool)) for tool in tools] or None,
        continued=ask.continue_final,
        conversation=conversation,
        answers=answers,
        history=history,
    )


def _path(param: str) -> Path:
    return tuple(int(step) if step.isdecimal() else step for step in param.split("."))


def _param(path: Path) -> str:
    return ".".join(map(str, path))


def _in_request(error: InvalidRequestError, locate: Callable[[Path], Path]) -> InvalidRequestError:
    """The error, with its place in the request."""
    if isinstance(error, ConversationError):
        return ConversationError(error.message, locate(error.path), offset=error.offset, marker=error.marker)
    if error.param is None:
        return error
    return InvalidRequestError(error.message, _param(locate(_path(error.param))))


async def _encode(conversation: Conversation, recipe: RecipePort, ask: Ask) -> list[int]:
    """Ids of a conversation; a long one in a thread."""

    def encode() -> list[int]:
        if ask.strict_markers:
            recipe.check_markers(conversation)
        ids = recipe.encode_chat(conversation, continue_final=ask.continue_final).ids
        _check_names(conversation, recipe, ask, ids)
        return ids

    if sum(len(message.content) for message in conversation.messages) <= INLINE_CHARS:
        return encode()
    return await asyncio.to_thread(encode)


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


def _grammar(ask: Ask, tools: Sequence[ToolSpec], recipe: RecipePort) -> GrammarSpec | None:
    """What the answer is held to, but for reasoning before it."""
    choice, form = ask.choice, ask.format
    offered = [
        GrammarTool(tool.name, _schema(tool) if tool.name in ask.strict else {"type": "object"})
        for tool in tools
        if (choice.mode != "named" or tool.name == choice.name)
        and (choice.allowed is None or tool.name in choice.allowed)
    ]
    if choice.mode in ("required", "named"):
        parallel = ask.parallel and choice.mode == "required"
        return tool_grammar(recipe.parsers, offered, required=True, parallel=parallel)
    if form is not None and form.kind in ("regex", "lark") and recipe.parsers.tool_format is ToolFormat.HARMONY:
        text = "This model answers in channels, so only JSON can be the form of its text."
        raise InvalidRequestError(text, ask.format_param)
    held = bool(offered) and (
        any(tool.name in ask.strict for tool in tools) or not ask.parallel or choice.allowed is not None
    )
    grammar = answer_grammar(recipe.parsers, form, offered if held or form is not None else [], parallel=ask.parallel)
    if held and grammar is None:
        text = "Nothing marks where this model's calls begin, so they can't be held to anything unless one is required."
        raise InvalidRequestError(text, ask.choice_param)
    return grammar


def _checked(
    grammar: GrammarSpec | None, ask: Ask, tools: Sequence[ToolSpec], recipe: RecipePort, ids: Sequence[int]
) -> GrammarSpec | None:
    """The grammar for this prompt, once everything in it was compiled. Raises InvalidRequestError that says where."""
    param = ask.format_param
    if grammar is not ask.format:
        if ask.format is not None:
            recipe.check_grammar(ask.format, param)
        param = "tools" if tools else param
        for index, tool in enumerate(tools):
            if tool.name in ask.strict:
                place = ask.locate(("tools", index, "function", "parameters"))
                recipe.check_grammar(schema_grammar(_schema(tool), _param(place)), _param(place))
    whole = grammar
    if grammar is not None:
        check_text(grammar.text, param)
        whole = after_reasoning(grammar, recipe.parsers, ids)
    if ask.reasoning_budget is not None:
        whole = within_budget(grammar, recipe.parsers, ids, ask.reasoning_budget)
    if whole is not None:
        recipe.check_grammar(whole, param)
    return whole


def check_text(text: str, param: str) -> None:
    """Raise InvalidRequestError for text that is not Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"'{param}' holds a lone surrogate, which is not a character.", param) from error


def _schema(tool: ToolSpec) -> dict[str, Any]:
    return tool.parameters or {"type": "object", "properties": {}}


def _required(tool: ToolSpec) -> frozenset[str]:
    required = (tool.parameters or {}).get("required")
    return frozenset(name for name in required if isinstance(name, str)) if isinstance(required, list) else frozenset()
