"""Calls of DeepSeek V4 and V4.1: what a template writes, the parser reads as the same calls and the grammar allows."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.deepseek_models import LINES, NAMES, Model, built
from tests.recipe.families import property_test

from forebay.core.request import FinishReason
from forebay.recipe import Conversation, Message
from forebay.recipe.conversation import ToolCall
from forebay.recipe.grammar import DeadEndError, GrammarCompiler, GrammarTool, grammar_tokens, tool_grammar
from forebay.recipe.parsers import (
    AnswerEnd,
    Event,
    Problem,
    ProblemKind,
    ReasoningDelta,
    TextDelta,
    Tool,
    ToolCallArguments,
    ToolCallStart,
    merge,
)
from forebay.recipe.templates.dsml_text import members
from forebay.recipe.templates.json_text import respaced

_TOOLS = ("look", "run-it")


@pytest.fixture(params=NAMES)
def model(request: pytest.FixtureRequest) -> Model:
    return built()[request.param]


def answer_ids(model: Model, message: Message) -> list[int]:
    """The ids of an answer behind the prompt that asks for it, without the one that ends it."""
    asked = [Message("user", "go")]
    results = [Message("tool", "r") for _ in message.calls] or [Message("user", "x")]
    whole = model.ids(Conversation([*asked, message, *results], thinking=False))
    start = len(model.ids(Conversation(asked, thinking=False)))
    [end] = model.recipe.stop_token_ids
    return whole[start : whole.index(end, start)]


def read(model: Model, ids: Sequence[int], *, whole: bool) -> tuple[list[Event], AnswerEnd]:
    """The answer's events, from all tokens at once or from one after the other."""
    parsing = model.recipe.parsers.parser(
        model.recipe.detokenizer(),
        prompt_ids=model.ids(Conversation([Message("user", "go")], thinking=False)),
        tools=[Tool(name) for name in _TOOLS],
        stop_ids=model.recipe.stop_token_ids,
    )
    pieces = [ids] if whole else [[each] for each in ids]
    events = [event for piece in pieces for event in parsing.push(piece)]
    events += parsing.finish(FinishReason.STOP)
    return merge(events), parsing.end


def said(arguments: str) -> list[tuple[str, object]]:
    """What arguments say: names in order, texts decoded, numbers as they are spelled."""
    found = members(arguments)
    assert found is not None
    return [(key, json.loads(value) if value.startswith('"') else respaced(value)) for key, value in found]


_NAMES_OF_ARGUMENTS = st.sampled_from(
    ("city", "a b", "é", 'a" string="true">X', "back\\", 'q"', "\\n", "line\nbreak", "<\uff5cDSML\uff5cinvoke", "")
)
_SPELLINGS = st.sampled_from(
    (
        "1.10",
        "12345678901234567890123",
        "1e3",
        "-0.0",
        "true",
        "null",
        '{"k":1,"k":2}',
        "[1, [2,\n3]]",
        '{"\\u00e9": "\\""}',
        '"\\ud800"',
    )
)
_TEXTS = LINES | st.sampled_from(
    (
        "",
        " ",
        "</\uff5cDSML\uff5cparameter>",
        "</\uff5cDSML\uff5c parameter>\n",
        "a</",
        "<",
        '"quoted"',
        "\\",
        "<think>x</think>",
        "\t\n",
    )
)
_VALUES = _SPELLINGS | _TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False))
_ARGUMENTS = st.lists(st.tuples(_NAMES_OF_ARGUMENTS, _VALUES), max_size=4).map(
    lambda pairs: "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in pairs) + "}"
)


@pytest.mark.parametrize("name", NAMES)
@property_test
@given(calls=st.lists(st.tuples(st.sampled_from(_TOOLS), _ARGUMENTS), min_size=1, max_size=3), text=st.just("") | LINES)
def test_a_rendered_call_is_read_as_the_same(name: str, calls: list[tuple[str, str]], text: str) -> None:
    model = built()[name]
    made = [ToolCall(f"c{at}", tool, arguments) for at, (tool, arguments) in enumerate(calls)]
    ids = answer_ids(model, Message("assistant", text, calls=made))
    for whole in (True, False):
        events, end = read(model, ids, whole=whole)
        assert end is AnswerEnd.TOOL_CALLS
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text
        assert [event.name for event in events if isinstance(event, ToolCallStart)] == [call.name for call in made]
        read_arguments = [event.fragment for event in events if isinstance(event, ToolCallArguments)]
        assert [said(each) for each in read_arguments] == [said(call.arguments) for call in made]
        kinds = {event.kind for event in events if isinstance(event, Problem)}
        assert kinds <= {ProblemKind.DUPLICATE_FIELD}


def test_the_versions_spell_their_tags_apart() -> None:
    call = Message("assistant", "", calls=[ToolCall("c", "look", '{"n": 1}'), ToolCall("d", "run-it", "{}")])
    mark = "[\uff5cDSML\uff5c]"
    spelled = {name: model.spelled(answer_ids(model, call)) for name, model in built().items()}
    assert spelled["deepseek-v4"] == (
        f'\n\n<{mark}tool_calls>\n<{mark}invoke name="look">\n<{mark}parameter name="n" string="false">1'
        f'</{mark}parameter>\n</{mark}invoke>\n<{mark}invoke name="run-it">\n</{mark}invoke>\n</{mark}tool_calls>'
    )
    assert spelled["deepseek-v4.1"] == (
        f'\n\n<{mark} calls>\n<{mark} invoke name="look">\n<{mark} parameter name="n" string="false">1'
        f'</{mark} parameter>\n</{mark} invoke>\n<{mark} invoke name="run-it">\n\n</{mark} invoke>\n</{mark} calls>'
    )


_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "x": {"type": "array"}},
    "required": ["city"],
}


@pytest.mark.parametrize(
    "arguments",
    ['{"city": "Zürich\\n</"}', '{"city": "", "days": 3}', '{"city": "a", "days": -1, "x": [1, {"k": null}]}'],
)
def test_the_grammar_allows_what_the_template_writes(model: Model, arguments: str) -> None:
    """A required call needs no ending of the prompt: the grammar forces it from the answer's first token on."""
    recipe = model.recipe
    compiler = GrammarCompiler(grammar_tokens(recipe.vocabulary, recipe.stop_token_ids))
    tools = [GrammarTool("look", _SCHEMA), GrammarTool("run-it", {"type": "object"})]
    spec = tool_grammar(recipe.parsers, tools, required=True)
    assert spec is not None
    matcher = compiler.matcher(spec)
    made = [ToolCall("c", "look", arguments), ToolCall("d", "run-it", "{}")]
    matcher.follow(answer_ids(model, Message("assistant", "", calls=made)))
    assert matcher.accepting
    with pytest.raises(DeadEndError):
        compiler.matcher(spec).follow(answer_ids(model, Message("assistant", "No call.")))


@pytest.mark.parametrize("arguments", ["{}", '{"a b": "x</", "n": 1.10, "o": {"k": [null]}}', '{"a": ""}'])
def test_a_tool_without_a_schema_takes_any_arguments(model: Model, arguments: str) -> None:
    recipe = model.recipe
    compiler = GrammarCompiler(grammar_tokens(recipe.vocabulary, recipe.stop_token_ids))
    spec = tool_grammar(recipe.parsers, [GrammarTool("look", {"type": "object"})], required=True)
    assert spec is not None
    matcher = compiler.matcher(spec)
    matcher.follow(answer_ids(model, Message("assistant", "", calls=[ToolCall("c", "look", arguments)])))
    assert matcher.accepting


def test_a_tool_whose_schema_has_no_property_takes_none(model: Model) -> None:
    recipe = model.recipe
    compiler = GrammarCompiler(grammar_tokens(recipe.vocabulary, recipe.stop_token_ids))
    tool = GrammarTool('qu"ote', {"type": "object", "properties": {}})
    spec = tool_grammar(recipe.parsers, [tool], required=True)
    assert spec is not None
    compiler.matcher(spec).follow(answer_ids(model, Message("assistant", "", calls=[ToolCall("c", 'qu"ote', "{}")])))
    with pytest.raises(DeadEndError):
        compiler.matcher(spec).follow(
            answer_ids(model, Message("assistant", "", calls=[ToolCall("c", 'qu"ote', '{"a": 1}')]))
        )


def test_a_prefill_of_reasoning_is_continued_as_reasoning(model: Model) -> None:
    asked = Conversation([Message("user", "go"), Message("assistant", "", reasoning="Half a thought, and")])
    prompt = model.ids(asked, continue_final=True)
    parsing = model.recipe.parsers.parser(model.recipe.detokenizer(), prompt_ids=prompt, tools=None)
    end = model.recipe.vocabulary.control_id("</think>")
    events = parsing.push([*model.recipe.plain_ids(" more."), end, *model.recipe.plain_ids("Done.")])
    assert merge(events + parsing.finish(FinishReason.STOP)) == [ReasoningDelta(" more."), TextDelta("Done.")]
