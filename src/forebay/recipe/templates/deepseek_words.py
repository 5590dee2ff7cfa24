"""What DeepSeek's V4 and V4.1 say in their prompts beside the conversation: how much to reason, how to call tools, what
an answer has to look like. `deepseek_official.py` proves that these are the words of DeepSeek's own encoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from forebay.core.grammar import GrammarSpec
from forebay.recipe.conversation import Effort
from forebay.recipe.pieces import Control, Piece, Words
from forebay.recipe.templates.dsml_text import Dsml

_HIGH: Final = (
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, "
    "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
    "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n"
)
_MAX: Final = (
    "Reasoning Effort: Beyond maximum \u2014 exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the "
    "problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying "
    "cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain "
    "that no assumption remains unchecked and no error remains undiscovered.\n\n"
)
_LEVELS: Final[dict[Effort | None, str]] = {"minimal": "low", "low": "low", "max": "max"}
"""Of three levels; every other effort, and none, is high."""
_V4: Final = {"low": "", "high": _HIGH, "max": _MAX}
_V41: Final = {"low": 50, "high": 75, "max": 100}
_RESPONSE: Final = "## Response Format:\n\n"
_SCHEMA: Final = _RESPONSE + "You MUST strictly adhere to the following schema to reply:\n"
TOOLS_END: Final = (
    "\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"
)
RESULT: Final = ("<tool_result>", "</tool_result>")
"""Around a tool's result."""
DELIMITERS: Final = (*RESULT, "Reasoning Effort:", _RESPONSE.rstrip())
"""Structure that is plain text and could be typed; the words about tools hold control tokens, so they can't."""


def effort_of_v4(effort: Effort | None) -> str:
    """V4's paragraph on how much to reason."""
    return _V4[_LEVELS.get(effort, "high")]


def effort_of_v41(effort: Effort | None) -> str:
    """V4.1's line on how much to reason."""
    level = _V41[_LEVELS.get(effort, "high")]
    return f"Reasoning Effort: {level} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"


def tools_head(dsml: Dsml, think: int, think_end: int) -> Iterator[Piece]:
    """How to call tools, up to the list of them. The tokens in it are real ones, as in the model's training."""
    block, invoke, parameter = dsml.block, dsml.invoke, dsml.parameter
    example = (
        '"<', f'{block}>" block like the following:\n\n<', f"{block}>\n<", f'{invoke} name="$TOOL_NAME">\n<',
        f'{parameter} name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</', f"{parameter}>\n...\n</",
        f"{invoke}>\n<", f'{invoke} name="$TOOL_NAME2">\n...\n</', f"{invoke}>\n</", f"{block}>\n\n",
    )  # fmt: skip
    yield Words(
        "## Tools\n\nYou have access to a set of tools to help answer the user's question. You can invoke tools by "
        f"writing a {example[0]}"
    )
    for words in example[1:]:
        yield from (Control(dsml.mark), Words(words))
    yield Words(
        'String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, '
        'arrays, objects), pass the value in JSON format and set `string="false"`.\n\n'
        "If thinking_mode is enabled (triggered by "
    )
    yield from (Control(think), Words("), you MUST output your complete reasoning inside "), Control(think))
    yield from (Words("..."), Control(think_end), Words(" BEFORE any tool calls or final response.\n\n"))
    yield from (Words("Otherwise, output directly after "), Control(think_end))
    yield Words(" with tool calls or final response.\n\n### Available Tool Schemas\n\n")


def format_of_v4(spec: GrammarSpec) -> str | None:
    """What V4 says before a schema; None for a format that it says nothing about."""
    if spec.kind == "json_object":
        return f"You are a helpful assistant designed to output JSON.\n{_RESPONSE}Reply with JSON object ONLY."
    return _SCHEMA if spec.kind == "json_schema" else None


def format_of_v41(spec: GrammarSpec) -> str | None:
    """What V4.1 says before a schema; None for a format that it says nothing about."""
    if spec.kind == "json_object":
        return _SCHEMA + '{"type": "json_object"}'
    return _SCHEMA if spec.kind == "json_schema" else None
