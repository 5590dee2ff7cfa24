"""Says where in a schema lies what can't be compiled. The library only says what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from llguidance import LLMatcher

from forebay.core.grammar import GrammarSpec

_PROBES: Final = 2000
"""Parts of a schema that are tried, at most."""
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems", "items")


def fault_in(spec: GrammarSpec, problem: str) -> str:
    """A sentence for the client from the library's message, with the JSON pointer of the smallest part to blame."""
    if spec.kind != "json_schema":
        kind = "regular expression" if spec.kind == "regex" else "grammar"
        return f"The {kind} can't be compiled: {problem}"
    pointer, narrower = _smallest(json.loads(spec.text), problem)
    return f"The schema can't be compiled: {narrower} (at {pointer or 'its root'})"


def _smallest(schema: Any, problem: str) -> tuple[str, str]:
    """The deepest part that fails on its own, given the definitions of the whole, and its message."""
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    pointer, probes = "", 0
    while True:
        for step, part in _parts(schema):
            probes += 1
            if probes > _PROBES or not isinstance(part, dict):
                continue
            found = _message(definitions | part)
            if found:
                pointer, schema, problem = f"{pointer}/{step}", part, found
                break
        else:
            return pointer, problem


def _parts(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas right within a schema, each with its steps as in a JSON pointer."""
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            yield from ((f"{key}/{_escaped(name)}", part) for name, part in value.items())
        elif key in _LISTS and isinstance(value, list):
            yield from ((f"{key}/{at}", part) for at, part in enumerate(value))
        elif isinstance(value, dict) and key not in ("enum", "const", "default"):
            yield _escaped(key), value


def _message(schema: dict[str, Any]) -> str:
    found, messages = LLMatcher.validate_grammar_with_warnings(LLMatcher.grammar_from_json_schema(schema))
    return messages[0].strip() if found and messages else ""


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
