"""A Messages request → what it asks of the answer: conversation, tools, format, thinking, and the hints for the cache.

Thinking is off where the request doesn't speak of it, as Anthropic documents.
"""

from __future__ import annotations

from forebay.api.anthropic_blocks import CacheMark, ToolResultBlock
from forebay.api.anthropic_conversation import AnyBlock, Turn, in_request, turns_of
from forebay.api.anthropic_tools import choice_of, specs_of
from forebay.api.anthropic_types import PromptFields, ThinkingAdaptive, ThinkingEnabled
from forebay.api.asking import Ask, Path
from forebay.api.errors import FaultError, Kind
from forebay.api.grammars import schema_grammar
from forebay.api.ports import RecipePort
from forebay.core.errors import InvalidRequestError
from forebay.core.grammar import GrammarSpec
from forebay.recipe import Conversation, Effort
from forebay.recipe.grammar import can_bound
from forebay.recipe.parsers import ToolFormat


def ask_of(body: PromptFields, recipe: RecipePort) -> Ask:
    """What a request asks. Raises InvalidRequestError for what can't be asked together, or not of this model."""
    _refuse_thread(body)
    turns = turns_of(body)
    thinking, budget = _thinking(body, recipe)
    prefilled = turns[-1].role == "assistant"
    form, form_param = _format(body)
    if prefilled:
        _check_prefill(turns[-1], thinking=budget is not None, formatted=form is not None)
    choice, parallel = choice_of(body.tool_choice)
    return Ask(
        Conversation(
            [turn.message() for turn in turns],
            specs_of(body.tools),
            thinking,
            _effort(body, recipe, thinking),
            system_last=True,
        ),
        choice,
        parallel,
        strict=frozenset(tool.name for tool in body.tools or () if tool.strict),
        format=form,
        continue_final=prefilled,
        strict_markers=bool(body.strict_markers),
        reasoning_budget=budget,
        format_param=form_param,
        locate=lambda path: _located(path, turns),
    )


def _refuse_thread(body: PromptFields) -> None:
    """Raise FaultError for a conversation that the server shall hold; the SDK's tool runner asks for that by itself and
    goes on without when it reads this code."""
    if body.thread is not None:
        text = "This server holds no threads. Send the whole conversation, without 'thread'."
        raise FaultError(Kind.INVALID, text, "thread", {"error_code": "thread_unsupported_request"})


def _located(path: Path, turns: list[Turn]) -> Path:
    return in_request(path, turns)


def _thinking(body: PromptFields, recipe: RecipePort) -> tuple[bool | None, int | None]:
    """Whether to think, and for how many tokens at most. Raises InvalidRequestError where the model can't."""
    asked = body.thinking
    if isinstance(asked, ThinkingEnabled):
        if not can_bound(recipe.parsers):
            text = (
                "This model doesn't reason between tokens of its own, so thinking can't be held to a budget. Leave it "
                "out, or let the model decide with type 'adaptive'."
            )
            raise InvalidRequestError(text, "thinking")
        return (True if recipe.knows_thinking else None), asked.budget_tokens
    if isinstance(asked, ThinkingAdaptive):
        return (True if recipe.knows_thinking else None), None
    return False, None


def _effort(body: PromptFields, recipe: RecipePort, thinking: bool | None) -> Effort | None:
    """How much to reason. The protocol's effort is a wish about the whole answer, so where there is no reasoning that
    it could change, it changes nothing."""
    reasons = recipe.parsers.reasoning is not None or recipe.parsers.tool_format is ToolFormat.HARMONY
    off = thinking is False and recipe.knows_thinking
    return None if body.output_config is None or off or not reasons else body.output_config.effort


def _format(body: PromptFields) -> tuple[GrammarSpec | None, str]:
    """The grammar of the answer's text, and the field that asks for it."""
    config = None if body.output_config is None else body.output_config.format
    if config is not None and body.output_format is not None:
        raise InvalidRequestError("Give 'output_config.format' or 'output_format', not both.", "output_format")
    if config is not None:
        return schema_grammar(config.json_schema, "output_config.format.schema"), "output_config.format.schema"
    if body.output_format is not None:
        return schema_grammar(body.output_format.json_schema, "output_format.schema"), "output_format.schema"
    return None, "output_config.format.schema"


def _check_prefill(last: Turn, *, thinking: bool, formatted: bool) -> None:
    place = ".".join(map(str, last.place))
    if formatted:
        raise InvalidRequestError("An answer that has begun can't be held to a format any more.", place)
    if thinking and not last.reasoning:
        text = "An answer that has begun without thinking can't think any more; turn thinking off to continue it."
        raise InvalidRequestError(text, place)


def cache_controls(body: PromptFields) -> list[CacheMark | None]:
    """Every `cache_control` of a request: its own, and those of its blocks and tools."""
    contents = [body.system or (), *(message.content for message in body.messages)]
    blocks = [block for content in contents if not isinstance(content, str) for block in content]
    tools = [tool.cache_control for tool in body.tools or ()]
    return [body.cache_control, *tools, *(control for block in blocks for control in _controls(block))]


def _controls(block: AnyBlock) -> list[CacheMark | None]:
    found = [getattr(block, "cache_control", None)]
    if isinstance(block, ToolResultBlock) and not isinstance(block.content, str):
        found += [inner.cache_control for inner in block.content or ()]
    return found
