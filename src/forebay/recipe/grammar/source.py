"""A `GrammarSpec` as llguidance's own text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from llguidance import LLMatcher

from forebay.core.grammar import GrammarSpec

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

JSON_OPTIONS: Final[JsonCompileOptions] = {
    "whitespace_pattern": r"[ \n\t\r]{1,48}",
    "json_allow_general_unicode_escapes": True,
}
"""Whitespace between a JSON text's tokens is free but bounded, so that a model can't write it for ever."""

_SPACE: Final = "SPACE: /[ \\n]{0,4}/\n"


THOUGHT: Final = "thought: /(.|\\n)*/"
"""The rule of reasoning in grammars that say where it stands; `source_of` bounds it where there is a budget."""


def bounded(grammar: str, budget: int) -> str:
    """A grammar in which `THOUGHT`, on a line of its own, has at most so many tokens."""
    lines = grammar.split("\n")
    limited = THOUGHT.replace("thought", f"thought[max_tokens={budget}]", 1)
    return "\n".join(limited if line == THOUGHT else line for line in lines)


def source_of(spec: GrammarSpec) -> str:
    """The grammar's text. Raises ValueError when the schema is no JSON object."""
    inner = _inner(spec)
    if spec.after is None:
        return inner
    [answer] = json.loads(inner)["grammars"]
    begin = "start: reasoning @answer" if spec.begin is None else "start: (reasoning)? @answer"
    opening = "" if spec.begin is None else f"<[{spec.begin}]> "
    bound = "" if spec.budget is None else f"[max_tokens={spec.budget}]"
    free = f"{begin}\n{_SPACE}text{bound}: /(.|\\n)*/\nreasoning: {opening}text <[{spec.after}]> SPACE\n"
    return json.dumps({"grammars": [{"name": "free", "lark_grammar": free}, answer | {"name": "answer"}]})


def _inner(spec: GrammarSpec) -> str:
    if spec.kind == "json_object":
        return LLMatcher.grammar_from_json_schema({"type": "object"}, overrides=JSON_OPTIONS)
    if spec.kind == "json_schema":
        return LLMatcher.grammar_from_json_schema(spec.text, overrides=JSON_OPTIONS)
    if spec.kind == "regex":
        return LLMatcher.grammar_from_regex(spec.text)
    text = spec.text if spec.budget is None else bounded(spec.text, spec.budget)
    return json.dumps({"grammars": [{"lark_grammar": text}]})
