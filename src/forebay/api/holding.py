"""What an answer is held to while it is made: the grammar of its calls and of its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay.api.asking import Ask, param_of
from forebay.api.grammars import check_text, schema_grammar
from forebay.api.ports import RecipePort
from forebay.core.errors import InvalidRequestError
from forebay.core.grammar import GrammarSpec
from forebay.recipe import ToolSpec
from forebay.recipe.grammar import GrammarTool, after_reasoning, answer_grammar, tool_grammar, within_budget
from forebay.recipe.parsers import ToolFormat


def grammar_of(ask: Ask, tools: Sequence[ToolSpec], recipe: RecipePort) -> GrammarSpec | None:
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


def compiled(
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
                recipe.check_grammar(schema_grammar(_schema(tool), param_of(place)), param_of(place))
    whole = grammar
    if grammar is not None:
        check_text(grammar.text, param)
        whole = after_reasoning(grammar, recipe.parsers, ids)
    if ask.reasoning_budget is not None:
        whole = within_budget(grammar, recipe.parsers, ids, ask.reasoning_budget)
    if whole is not None:
        recipe.check_grammar(whole, param)
    return whole


def _schema(tool: ToolSpec) -> dict[str, Any]:
    return tool.parameters or {"type": "object", "properties": {}}
