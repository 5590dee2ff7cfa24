"""Grammars of whole answers, in each model's format: a form for the text, calls that may be made, or one of the two.

A JSON form says what the text is, so calls may come in its place. Regular expressions and grammars say all of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from forebay.core.grammar import GrammarSpec
from forebay.recipe.grammar.lark import harmony_analysis, json_of, marker
from forebay.recipe.grammar.source import THOUGHT
from forebay.recipe.grammar.tools import GrammarTool, call_rules, objects, tool_grammar
from forebay.recipe.parsers.spec import ParserSpec, ToolFormat
from forebay.recipe.vocabulary import Vocabulary

_ANY: Final = "/(.|\\n)*/"


def answer_grammar(
    parsers: ParserSpec, form: GrammarSpec | None, tools: Sequence[GrammarTool], *, parallel: bool = True
) -> GrammarSpec | None:
    """The grammar of an answer that may be calls of these tools, or else has this form.

    Args:
        parsers: the model's format.
        form: of the text; None is free text.
        tools: none, where no calls are to be held to anything.
        parallel: more than one call is allowed.

    Returns None when nothing constrains the answer, or when calls can't be held to their schemas in it because this
    vocabulary has nothing that marks where one begins.
    """
    if form is None:
        return None if not tools else _text_or_calls(parsers, tools, parallel=parallel)
    rule = _rule(form)
    if rule is None or (not tools and parsers.tool_format is not ToolFormat.HARMONY):
        return form
    calls = call_rules(parsers, tools, parallel=parallel) if tools else ""
    return _either(parsers, rule, calls)


def _rule(form: GrammarSpec) -> str | None:
    """A JSON form as a rule; None for the others."""
    if form.kind == "json_object":
        return json_of({"type": "object"})
    if form.kind == "json_schema":
        try:
            schema = json.loads(form.text)
        except ValueError:
            return None
        return json_of(schema) if isinstance(schema, dict) else None
    return None


def _either(parsers: ParserSpec, rule: str, calls: str) -> GrammarSpec:
    """Text that follows a rule, or calls, if there are any."""
    start = "start: calls | text" if calls else "start: text"
    if parsers.tool_format is ToolFormat.HARMONY:
        text = _final(parsers.vocabulary, rule)
        return GrammarSpec("lark", "\n".join((start, text, calls or THOUGHT)))
    return GrammarSpec("lark", f"{start}\ntext: {rule}\n{calls}")


def _text_or_calls(parsers: ParserSpec, tools: Sequence[GrammarTool], *, parallel: bool) -> GrammarSpec | None:
    marked = tool_grammar(parsers, tools, required=False, parallel=parallel)
    if marked is not None:
        return marked
    calls = call_rules(parsers, tools, parallel=parallel)
    match parsers.tool_format:
        case ToolFormat.HARMONY:
            return _either(parsers, "ANY", f"{calls}\nANY: {_ANY}")
        case ToolFormat.LLAMA3:
            # An object at the beginning is a call, so text begins with none.
            free = f"FREE: {_ANY} & ~/\\s*\\{{(.|\\n)*/"
            return GrammarSpec("lark", f"start: calls | FREE\n{free}\n{calls}")
        case ToolFormat.HERMES:
            return _spelled(tools, parallel=parallel)
        case _:
            return None


def _spelled(tools: Sequence[GrammarTool], *, parallel: bool) -> GrammarSpec:
    """Calls whose marker is no token begin where the marker stands at the beginning of a line, and nowhere else."""
    begin = "((.|\\n)*\\n)?\\s*<tool_call>"
    more = ' ("\\n<tool_call>" rest)*' if parallel else ""
    rules = [
        f"start: before rest{more} | FREE",
        f"FREE: {_ANY} & ~/{begin}(.|\\n)*/",
        f"before[lazy]: /{begin}/",
        'rest: "\\n" object "\\n</tool_call>"',
        objects(tools, "arguments"),
    ]
    return GrammarSpec("lark", "\n".join(rules))


def _final(vocabulary: Vocabulary, rule: str) -> str:
    """Harmony's message to the user, maybe behind an analysis; `THOUGHT` is among the rules of calls."""
    channel, constrain, message = (marker(vocabulary, f"<|{name}|>") for name in ("channel", "constrain", "message"))
    return f'text: ({harmony_analysis(vocabulary)})? {channel} "final" (" "? {constrain} "json")? {message} {rule}'
