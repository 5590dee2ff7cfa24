"""Events of an answer → items and the stream's events, for all orders that a parser may bring."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from tests.api.responses import EVENT
from tests.recipe.families import property_test

from forebay.api.responses_output import Json, ResponseOutput
from forebay.recipe.parsers import (
    Event,
    Problem,
    ProblemKind,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)

TEXTS = st.text(st.sampled_from('ab" é\n{}'), min_size=1, max_size=4)


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    """Events as parsers bring them: calls begin, get arguments and end, or break off."""
    found: list[Event] = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "call", "custom", "broken"]), max_size=6)):
        texts = draw(st.lists(TEXTS, min_size=1, max_size=3))
        if kind == "text":
            found += [TextDelta(text) for text in texts]
        elif kind == "reasoning":
            found += [ReasoningDelta(text) for text in texts]
        else:
            name = "shell" if kind == "custom" else "weather"
            found.append(ToolCallStart(calls, f"call_{calls}", name))
            found += [ToolCallArguments(calls, text) for text in texts]
            broken = Problem(ProblemKind.INVALID_ARGUMENTS, "no JSON", calls)
            found.append(broken if kind == "broken" else ToolCallEnd(calls))
            calls += 1
    return found


def written(answer: list[Event], **options: Any) -> tuple[ResponseOutput, list[Json]]:
    """The output and its events."""
    output = ResponseOutput(custom={"shell"}, **options)
    events = [event for part in answer for event in output.take(part)]
    return output, events + output.close("completed")


@property_test
@given(answers())
def test_events_add_up_to_the_items(answer: list[Event]) -> None:
    output, events = written(answer)
    added = [event["item"]["id"] for event in events if event["type"] == "response.output_item.added"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["id"] for item in done] == added
    assert done == output.items
    for index, item in enumerate(output.items):
        deltas = [e["delta"] for e in events if e["type"].endswith(".delta") and e["output_index"] == index]
        text = item.get("arguments", item.get("input"))
        assert "".join(deltas) == (item["content"][0]["text"] if text is None else text)
    texts = [item["content"][0]["text"] for item in output.items if item["type"] == "message"]
    assert "".join(texts) == "".join(part.text for part in answer if isinstance(part, TextDelta))


@property_test
@given(answers())
def test_the_official_client_follows_any_answer(answer: list[Event]) -> None:
    output, events = written(answer)
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    state: Any = ResponseStreamState(input_tools=[], text_format=omit)
    everything = [
        {"type": "response.created", "response": response},
        *events,
        {"type": "response.completed", "response": {**response, "output": output.items}},
    ]
    for number, event in enumerate(everything):
        state.handle_event(EVENT.validate_python({**event, "sequence_number": number}))
    parsed = state._completed_response
    assert [item.type for item in parsed.output] == [item["type"] for item in output.items]


@property_test
@given(answers())
def test_only_broken_calls_are_incomplete(answer: list[Event]) -> None:
    output, _ = written(answer)
    broken = {f"call_{part.index}" for part in answer if isinstance(part, Problem)}
    for item in output.items:
        assert (item["status"] == "incomplete") == (item.get("call_id") in broken)


def test_what_is_open_at_the_end_is_incomplete_when_the_answer_is() -> None:
    output = ResponseOutput()
    output.take(ReasoningDelta("a"))
    output.take(TextDelta("b"))
    output.close("incomplete")
    assert [item["status"] for item in output.items] == ["completed", "incomplete"]


def test_an_argument_that_is_missing_does_not_break_a_call() -> None:
    missing = Problem(ProblemKind.MISSING_FIELD, "no city", 0)
    output, _ = written([ToolCallStart(0, "c", "weather"), ToolCallArguments(0, "{}"), missing, ToolCallEnd(0)])
    assert output.items[0]["status"] == "completed"


def test_a_custom_tool_gets_its_text_and_else_what_the_model_wrote() -> None:
    for arguments, wanted in (
        ('{"input": "ls -l\\n"}', "ls -l\n"),
        ('{"command": "ls"}', '{"command": "ls"}'),
        ('{"input": "\\ud800"}', '{"input": "\\ud800"}'),
        ("[" * 9999, "[" * 9999),
    ):
        output, _ = written([ToolCallStart(0, "c", "shell"), ToolCallArguments(0, arguments), ToolCallEnd(0)])
        assert output.items[0]["input"] == wanted
