"""Answers of DeepSeek V4 and V4.1 that the official stream parser reads wrongly, by the numbers of its defects P1 to
P12.

P1 and P2 (names with spaces, quotes and backslashes) are in `test_recipe_deepseek_calls.py`. P10 (tokens of reasoning
are counted from a new encoding), P11 (a push behind a stop sequence raises) and P12 (JSON mode keeps prose) have no
counterpart in a parser that counts nothing, stops nothing and repairs nothing.
"""

from __future__ import annotations

import re

import pytest
from tests.recipe.deepseek_models import NAMES, Model, built

from forebay.core.request import FinishReason
from forebay.recipe.parsers import (
    AnswerEnd,
    Event,
    Problem,
    ProblemKind,
    TextDelta,
    Tool,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    merge,
)

_MARK = "\uff5cDSML\uff5c"


@pytest.fixture(params=NAMES)
def model(request: pytest.FixtureRequest) -> Model:
    return built()[request.param]


def _ids(model: Model, answer: str) -> list[int]:
    """@ is the marker of all tags, {…} a control token; V4.1's tags have a space behind the marker."""
    if model.name == "deepseek-v4.1":
        answer = answer.replace("@tool_calls", "@ calls").replace("@invoke", "@ invoke").replace("@param", "@ param")
    found: list[int] = []
    for place, part in enumerate(re.split(r"(@|\{[^{}]*\})", answer)):
        spelling = _MARK if part == "@" else part[1:-1]
        found += [model.recipe.vocabulary.control_id(spelling)] if place % 2 else model.recipe.plain_ids(part)
    return found


def _read(model: Model, answer: str) -> tuple[list[Event], AnswerEnd]:
    ids = _ids(model, answer)
    ends = []
    for step in (len(ids), 1):
        parsing = model.recipe.parsers.parser(
            model.recipe.detokenizer(),
            tools=[Tool("look")],
            stop_ids=model.recipe.stop_token_ids,
            new_id=lambda at: f"call_{at}",
        )
        events = [event for at in range(0, len(ids), step) for event in parsing.push(ids[at : at + step])]
        events += parsing.finish(FinishReason.STOP)
        ends.append((merge(events), parsing.end))
    assert ends[0] == ends[1]
    return ends[0]


def _text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def _kinds(events: list[Event]) -> list[ProblemKind]:
    return [event.kind for event in events if isinstance(event, Problem)]


def _block(*calls: str) -> str:
    return "\n\n<@tool_calls>\n" + "".join(f"{call}\n" for call in calls) + "</@tool_calls>"


def _call(inner: str, name: str = "look") -> str:
    return f'<@invoke name="{name}">\n{inner}</@invoke>'


@pytest.mark.parametrize("value", ["tru", "", "[1,", "1 2", "nul"])
def test_p3_a_value_that_is_no_json_ends_no_call(model: Model, value: str) -> None:
    events, end = _read(model, _block(_call(f'<@parameter name="x" string="false">{value}</@parameter>\n')))
    assert end is AnswerEnd.MALFORMED
    assert ProblemKind.INVALID_ARGUMENTS in _kinds(events)
    assert not any(isinstance(event, ToolCallEnd) for event in events)


def test_p4_a_repeated_name_is_reported(model: Model) -> None:
    twice = "".join(f'<@parameter name="x" string="false">{value}</@parameter>\n' for value in (1, 2))
    events, end = _read(model, _block(_call(twice)))
    assert (end, _kinds(events)) == (AnswerEnd.TOOL_CALLS, [ProblemKind.DUPLICATE_FIELD])
    assert [event.fragment for event in events if isinstance(event, ToolCallArguments)] == ['{"x": 1, "x": 2}']


def test_p5_a_call_that_is_cut_off_ends_as_length(model: Model) -> None:
    whole = _block(_call('<@parameter name="x" string="true">Zürich</@parameter>\n'))
    for end_of_it in ("ürich", 'string="', "</@invoke>"):
        events, end = _read(model, whole[: whole.index(end_of_it)])
        assert end is AnswerEnd.LENGTH
        assert not any(isinstance(event, ToolCallEnd) for event in events)


def test_p6_a_marker_that_begins_no_block_swallows_nothing(model: Model) -> None:
    events, end = _read(model, "hi <@foo> there bye")
    assert end is AnswerEnd.STOP
    assert _text(events) == "hi <foo> there bye"
    assert _kinds(events) == [ProblemKind.UNEXPECTED_CONTROL]


def test_p7_text_and_calls_behind_a_block_survive(model: Model) -> None:
    events, end = _read(model, "One." + _block(_call("")) + "Two." + _block(_call(""), _call("")) + "\nThree.")
    assert end is AnswerEnd.TOOL_CALLS
    assert sum(isinstance(event, ToolCallEnd) for event in events) == 3
    assert [text for text in re.split(r"\s+", _text(events)) if text] == ["One.", "Two.", "Three."]


def test_p8_control_tokens_never_become_text(model: Model) -> None:
    events, _ = _read(model, "a{<\uff5cUser\uff5c>}b{<\uff5cend\u2581of\u2581sentence\uff5c>}")
    assert _text(events) == "ab"
    assert _kinds(events) == [ProblemKind.UNEXPECTED_CONTROL]


def test_p9_an_unknown_tool_is_reported(model: Model) -> None:
    events, _ = _read(model, _block(_call("", name="delete_all")))
    assert [event.name for event in events if isinstance(event, ToolCallStart)] == ["delete_all"]
    assert _kinds(events) == [ProblemKind.UNKNOWN_TOOL]


def test_a_literal_marker_is_text(model: Model) -> None:
    """Spelled with plain tokens it opens nothing."""
    typed = _block(_call("")).replace("@", _MARK)
    events, end = _read(model, f"They write {typed} then")
    assert (_text(events), end) == (f"They write {typed} then", AnswerEnd.STOP)
