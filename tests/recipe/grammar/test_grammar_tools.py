"""What the grammar of tool calls lets through is read by the format's parser as calls, without a problem."""

from __future__ import annotations

import json
import random
from typing import Any, Final

import jsonschema_rs
import pytest
from tests.recipe.parsers.answers import END, ids, parser, read, spec, vocabulary

from forebay.core.errors import InvalidRequestError
from forebay.core.grammar import GrammarSpec
from forebay.recipe.grammar import (
    GrammarCompiler,
    GrammarTool,
    after_reasoning,
    allowed_tokens,
    grammar_tokens,
    tool_grammar,
)
from forebay.recipe.parsers import (
    AnswerEnd,
    Event,
    Problem,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
)

FORMATS: Final = ["hermes", "llama3", "mistral", "dsml", "harmony"]
SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "look": {
        "type": "object",
        "properties": {
            "place": {"enum": ["Rome", "a < b"]},
            "n": {"$ref": "#/$defs/number"},
            "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        },
        "required": ["place"],
        "additionalProperties": False,
        "$defs": {"number": {"type": "integer", "minimum": 0, "maximum": 999}},
    },
    "run": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS: Final = [GrammarTool(name, schema) for name, schema in SCHEMAS.items()]


def walk(name: str, grammar: GrammarSpec, seed: int, *, tokens: bool = True, steps: int = 1500) -> list[int]:
    """Random tokens that the grammar allows, until it ends; control tokens and closing characters more often."""
    vocab = vocabulary(name, tokens=tokens)
    stop = vocab.control[END]
    compiler = GrammarCompiler(grammar_tokens(vocab, (stop,)))
    matcher, draw = compiler.matcher(grammar), random.Random(seed)
    output: list[int] = []
    for _ in range(steps):
        matcher.follow(output)
        allowed = [token for token, may in enumerate(allowed_tokens([matcher], compiler.vocab_size)[0].tolist()) if may]
        weights = [_weight(name, token, tokens=tokens) for token in allowed]
        output += draw.choices(allowed, weights)
        if output[-1] == stop:
            return output
    raise AssertionError("the answer has no end")


def _weight(name: str, token: int, *, tokens: bool) -> int:
    vocab = vocabulary(name, tokens=tokens)
    if vocab.is_control(token):
        return 400
    return {b"/": 900, b"<": 60, b">": 60, b"}": 60, b'"': 60, b"]": 60}.get(vocab.token_bytes(token), 1)


def heard(events: list[Event]) -> list[tuple[str, Any]]:
    """The calls."""
    calls: list[list[str]] = []
    for event in events:
        if isinstance(event, ToolCallStart):
            calls.append([event.name, ""])
        elif isinstance(event, ToolCallArguments):
            calls[-1][1] += event.fragment
    return [(called, json.loads(arguments)) for called, arguments in calls]


def check(events: list[Event]) -> list[str]:
    """The names of the calls, all of which follow their schemas."""
    assert not [event for event in events if isinstance(event, Problem)]
    calls = heard(events)
    for called, arguments in calls:
        jsonschema_rs.validate(SCHEMAS[called], arguments)
    return [called for called, _ in calls]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", range(6))
def test_required_calls_are_made_and_follow_their_schemas(name: str, seed: int) -> None:
    grammar = tool_grammar(spec(name), TOOLS, required=True)
    assert grammar is not None
    events, end = read(parser(name), walk(name, grammar, seed))
    assert end is AnswerEnd.TOOL_CALLS
    assert check(events)


@pytest.mark.parametrize("name", ["hermes", "llama3", "dsml"])
def test_markers_that_are_no_tokens_are_spelled(name: str) -> None:
    grammar = tool_grammar(spec(name, tokens=False), TOOLS, required=True)
    assert grammar is not None
    events, _ = read(parser(name, tokens=False), walk(name, grammar, 1, tokens=False))
    assert check(events)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", range(3))
def test_a_named_tool_is_the_only_one_and_is_called_once(name: str, seed: int) -> None:
    grammar = tool_grammar(spec(name), TOOLS[:1], required=True, parallel=False)
    assert grammar is not None
    assert check(read(parser(name), walk(name, grammar, seed))[0]) == ["look"]


@pytest.mark.parametrize("name", ["hermes", "mistral", "dsml"])
def test_text_or_calls(name: str) -> None:
    grammar = tool_grammar(spec(name), TOOLS, required=False)
    assert grammar is not None
    answers = [read(parser(name), walk(name, grammar, seed)) for seed in range(12)]
    assert {end for _, end in answers} >= {AnswerEnd.TOOL_CALLS}
    for events, _ in answers:
        check(events)
    assert any(isinstance(event, TextDelta) for events, _ in answers for event in events)


@pytest.mark.parametrize("name", ["llama3", "harmony"])
def test_formats_in_which_nothing_marks_a_call_leave_a_free_answer_free(name: str) -> None:
    assert tool_grammar(spec(name), TOOLS, required=False) is None


def test_no_tools_is_an_error() -> None:
    with pytest.raises(InvalidRequestError):
        tool_grammar(spec("hermes"), [], required=True)


@pytest.mark.parametrize(
    ("prompt", "reasons"), [("", None), ("⟦<think>⟧\n", True), ("⟦<think>⟧\n\n⟦</think>⟧\n\n", False)]
)
def test_reasoning_comes_before_the_answer_where_the_prompt_leaves_room(prompt: str, reasons: bool | None) -> None:
    before = ids("hermes", prompt)
    grammar = after_reasoning(GrammarSpec("regex", "(yes|no)"), spec("hermes"), before)
    reasoned = set()
    for seed in range(8):
        events, _ = read(parser("hermes", prompt=before), walk("hermes", grammar, seed))
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert text.strip() in ("yes", "no")
        reasoned.add(any(isinstance(event, ReasoningDelta) for event in events))
    assert reasons is None or reasoned <= {reasons, False}
