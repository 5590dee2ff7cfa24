"""Grammars of answers that are tool calls, in each model's own format.

What a grammar lets through, the parser of the same format reads as calls without a problem.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forebay.core.errors import InvalidRequestError
from forebay.core.grammar import GrammarSpec
from forebay.recipe.grammar.dsml import dsml_calls
from forebay.recipe.grammar.lark import harmony_analysis, json_of, literal, marker
from forebay.recipe.grammar.source import THOUGHT
from forebay.recipe.parsers.spec import ParserSpec, ToolFormat
from forebay.recipe.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class GrammarTool:
    """A tool that may be called. Calls follow `parameters`, so pass `{"type": "object"}` for one that is not strict."""

    name: str
    parameters: Mapping[str, Any]


def tool_grammar(
    parsers: ParserSpec, tools: Sequence[GrammarTool], *, required: bool, parallel: bool = True
) -> GrammarSpec | None:
    """The grammar of an answer to a request with tools.

    Args:
        parsers: the model's format.
        tools: those that may be called; one for a named choice.
        required: the answer has to be at least one call. Otherwise it may be text, in which calls are constrained once
            they begin; None then means that the format can't do it, since nothing marks where a call begins.
        parallel: more than one call is allowed.

    Raises:
        InvalidRequestError: there is no tool.
    """
    if not tools:
        raise InvalidRequestError("A tool call is required, but no tools are offered.", "tools")
    vocabulary = parsers.vocabulary
    begin = _BEGINS[parsers.tool_format]
    if not required and (begin is None or begin not in vocabulary.control):
        return None
    calls = call_rules(parsers, tools, parallel=parallel)
    if required:
        return GrammarSpec("lark", f"start: calls\n{calls}")
    if parsers.tool_format is ToolFormat.DSML:
        return GrammarSpec("lark", f"start: TEXT | BEFORE calls_open\nTEXT: /(.|\\n)*/\nBEFORE: /(.|\\n)*</\n{calls}")
    return GrammarSpec("lark", f"start: TEXT (calls)?\nTEXT: /(.|\\n)*/\n{calls}")


def call_rules(parsers: ParserSpec, tools: Sequence[GrammarTool], *, parallel: bool) -> str:
    """Rules for one or more calls in the model's format; `calls` is the first of them."""
    return _FORMATS[parsers.tool_format](parsers.vocabulary, tools, parallel)


_BEGINS: Final[dict[ToolFormat, str | None]] = {
    ToolFormat.HERMES: "<tool_call>",
    ToolFormat.MISTRAL: "[TOOL_CALLS]",
    ToolFormat.DSML: "\uff5cDSML\uff5c",
    ToolFormat.LLAMA3: None,
    ToolFormat.HARMONY: None,
}


_ID: Final = "ID: /[a-zA-Z0-9]{9}/"


def objects(tools: Sequence[GrammarTool], key: str, end: str = '"}"') -> str:
    """Rules `object` and one for each tool: a JSON object with the name and the arguments, then `end`."""
    names = [f"object_{at}" for at in range(len(tools))]
    rules = [f"object: {' | '.join(names)}"]
    for name, tool in zip(names, tools, strict=True):
        head = f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "{key}": '
        rules.append(f"{name}: {literal(head)} {json_of(tool.parameters)} {end}")
    return "\n".join(rules)


def _hermes(vocabulary: Vocabulary, tools: Sequence[GrammarTool], parallel: bool) -> str:
    begin, end = marker(vocabulary, "<tool_call>"), marker(vocabulary, "</tool_call>")
    calls = 'calls: call ("\\n" call)*' if parallel else "calls: call"
    return f'{calls}\ncall: {begin} "\\n" object "\\n" {end}\n{objects(tools, "arguments")}'


def _llama3(vocabulary: Vocabulary, tools: Sequence[GrammarTool], parallel: bool) -> str:
    """One call, whatever is asked: the chat template has no place for a history with more in one message."""
    return f"calls: object\n{objects(tools, 'parameters')}"


def _mistral(vocabulary: Vocabulary, tools: Sequence[GrammarTool], parallel: bool) -> str:
    """Ids may be there or not: versions of the format differ, and the model knows its own."""
    begin = marker(vocabulary, "[TOOL_CALLS]")
    if "[ARGS]" not in vocabulary.control:
        more = '(", " object)*' if parallel else ""
        rules = objects(tools, "arguments", "end")
        end = 'end: (", \\"id\\": \\"" ID "\\"")? "}"'
        return f'calls: {begin} / ?/ "[" object {more} "]"\n{end}\n{_ID}\n{rules}'
    names = [f"call_{at}" for at in range(len(tools))]
    middle = marker(vocabulary, "[ARGS]")
    if "[CALL_ID]" in vocabulary.control:
        middle = f"({marker(vocabulary, '[CALL_ID]')} ID)? {middle}"
    lines = [f"calls: (call){'+' if parallel else ''}", f"call: {' | '.join(names)}", _ID]
    for name, tool in zip(names, tools, strict=True):
        lines.append(f"{name}: {begin} {literal(tool.name)} {middle} {json_of(tool.parameters)}")
    return "\n".join(lines)


def _harmony(vocabulary: Vocabulary, tools: Sequence[GrammarTool], parallel: bool) -> str:
    """An analysis may come first. The token that ends a call ends the answer, so there is one call."""
    channel, constrain, message = (marker(vocabulary, f"<|{name}|>") for name in ("channel", "constrain", "message"))
    names = [f"call_{at}" for at in range(len(tools))]
    rules = [f"calls: ({harmony_analysis(vocabulary)})? ({' | '.join(names)})", THOUGHT]
    for name, tool in zip(names, tools, strict=True):
        head = literal(f"commentary to=functions.{tool.name} ")
        rules.append(f'{name}: {channel} {head} {constrain} "json" {message} {json_of(tool.parameters)}')
    return "\n".join(rules)


def _dsml(vocabulary: Vocabulary, tools: Sequence[GrammarTool], parallel: bool) -> str:
    return dsml_calls(vocabulary, [(tool.name, tool.parameters) for tool in tools], parallel=parallel)


_FORMATS: Final = {
    ToolFormat.HERMES: _hermes,
    ToolFormat.LLAMA3: _llama3,
    ToolFormat.MISTRAL: _mistral,
    ToolFormat.DSML: _dsml,
    ToolFormat.HARMONY: _harmony,
}
