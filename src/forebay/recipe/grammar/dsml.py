"""Grammars of calls in DSML, DeepSeek's format: a tag for each argument, text as it is and everything else as JSON.

Text has no quotes around it there, so of a schema's rules for strings only `enum` and `const` are enforced. A schema
without properties leaves the arguments free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from forebay.recipe.grammar.lark import json_of, literal, marker
from forebay.recipe.templates.dsml_text import spelled_name
from forebay.recipe.vocabulary import Vocabulary

_MARKER: Final = "\uff5cDSML\uff5c"
_SPACED: Final = "<\uff5cSystem\uff5c>"
"""Only the vocabularies whose models write a space behind the marker (V4.1) have this token."""
_DEFINITIONS: Final = ("$defs", "definitions")


def dsml_calls(vocabulary: Vocabulary, tools: Sequence[tuple[str, Mapping[str, Any]]], *, parallel: bool) -> str:
    """Rules `calls`, and `calls_open` for the same without the first angle bracket."""
    mark = marker(vocabulary, _MARKER)
    if _SPACED in vocabulary.control:
        writer = _Writer(mark, " calls", " invoke", " parameter", '"\\n"')
    else:
        writer = _Writer(mark, "tool_calls", "invoke", "parameter", "")
    return writer.block(tools, parallel=parallel)


class _Writer:
    """Writes rules with one set of tags."""

    def __init__(self, mark: str, block: str, invoke: str, parameter: str, empty: str) -> None:
        """`empty`: what stands in a call without arguments."""
        self._mark, self._block, self._invoke, self._parameter, self._empty = mark, block, invoke, parameter, empty
        self._rules: list[str] = []
        self._free = False
        """There is a rule for free arguments."""

    def block(self, tools: Sequence[tuple[str, Mapping[str, Any]]], *, parallel: bool) -> str:
        """All rules."""
        calls = " | ".join(f"call_{at}" for at in range(len(tools)))
        some = "call+" if parallel else "call"
        self._rules += [
            'calls: "\\n\\n<" calls_open',
            f"calls_open: {self._mark} {literal(self._block + '>')} {some} {self._close(self._block)}",
            f"call: {calls}",
            "VALUE: /(.|\\n)*<\\//",
        ]
        for at, (name, schema) in enumerate(tools):
            self._call(at, name, schema)
        return "\n".join(self._rules)

    def _close(self, tag: str) -> str:
        return f'"\\n</" {self._mark} {literal(tag + ">")}'

    def _call(self, at: int, name: str, schema: Mapping[str, Any]) -> None:
        inner = self._arguments(at, schema) if "properties" in schema else self._free_arguments()
        head = literal(f'{self._invoke} name="{spelled_name(name)}">')
        self._rules.append(f'call_{at}: "\\n<" {self._mark} {head} {inner} {self._close(self._invoke)}')

    def _free_arguments(self) -> str:
        """Any arguments, each as text or as JSON."""
        if not self._free:
            self._free = True
            head, tail = literal(f'{self._parameter} name="'), literal(self._parameter + ">")
            text, value = literal('" string="true">'), literal('" string="false">')
            either = f'({text} VALUE | {value} {json_of({})} "</")'
            self._rules += [
                f'free_argument: "\\n<" {self._mark} {head} NAME {either} {self._mark} {tail}',
                'NAME: /[^"\\\\<>\\n]+/',
            ]
        return f"(free_argument+ | {self._empty})" if self._empty else "free_argument*"

    def _arguments(self, at: int, schema: Mapping[str, Any]) -> str:
        """The schema's own, in its order."""
        properties = schema.get("properties") or {}
        required = schema.get("required") or ()
        shared = {key: schema[key] for key in _DEFINITIONS if key in schema}
        parts = []
        for number, (argument, value) in enumerate(properties.items()):
            rule = f"argument_{at}_{number}"
            self._argument(rule, argument, {**shared, **value} if isinstance(value, dict) else shared)
            parts.append(rule if argument in required else f"({rule})?")
        inner = " ".join(parts)
        if self._empty and not required:
            return f"({inner} | {self._empty})" if parts else self._empty
        return inner

    def _argument(self, rule: str, name: str, schema: Mapping[str, Any]) -> None:
        string = _is_text(schema)
        head = literal(f'{self._parameter} name="{spelled_name(name)}" string="{"true" if string else "false"}">')
        value = _text_of(schema) if string else f'{json_of(schema)} "</"'
        self._rules.append(f'{rule}: "\\n<" {self._mark} {head} {value} {self._mark} {literal(self._parameter + ">")}')


def _is_text(schema: Mapping[str, Any]) -> bool:
    """Whether all values are strings, which DSML writes as they are."""
    choices = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    return schema.get("type") == "string" or (bool(choices) and all(isinstance(each, str) for each in choices))


def _text_of(schema: Mapping[str, Any]) -> str:
    choices = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    if choices:
        return "(" + " | ".join(literal(each) for each in choices if isinstance(each, str)) + ') "</"'
    return "VALUE"
