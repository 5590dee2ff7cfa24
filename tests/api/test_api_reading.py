"""The reader of one choice: stop strings among events, what is reasoning, and that no cut of the stream matters."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api.tool_recipe import tool_recipe
from tests.recipe.parsers import answers

from forebay.api.reading import EndReason, Finish, ParsedReader, calls_of
from forebay.core.request import FinishReason
from forebay.recipe.parsers import Event, Problem, ProblemKind, ReasoningDelta, TextDelta, Tool, merge

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "stop"}}\n</tool_call>'
THOUGHT = "<think>\nI stop.\n</think>\n\n"


def reader(stop: Sequence[str] = (), min_tokens: int = 0) -> ParsedReader:
    recipe = tool_recipe()
    parser = recipe.parsers.parser(recipe.detokenizer(), tools=[Tool("f")], stop_ids=recipe.stop_token_ids)
    return ParsedReader(parser, lambda token: not recipe.token_bytes(token).strip(), stop, min_tokens)


def read(
    reading: ParsedReader, text: str, sizes: Sequence[int] = (), reason: FinishReason = FinishReason.STOP
) -> tuple[list[Event], Finish, int]:
    """The merged events, how it ended, and how many tokens belong to it."""
    rest = tool_recipe().plain_ids(text)
    events: list[Event] = []
    taken = 0
    for size in (*sizes, len(rest)):
        part, rest = rest[:size], rest[size:]
        pushed = reading.push(part)
        events += pushed.events
        taken += pushed.tokens
        if pushed.stopped is not None:
            return merge(events), pushed.stopped, taken
    last, finish = reading.finish(reason, None)
    return merge([*events, *last]), finish, taken


def visible(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize(
    ("text", "stop", "shown", "finish"),
    [
        ("I stop here.", "stop", "I ", Finish(EndReason.STOP, "stop")),
        (f"{THOUGHT}Well, stop.", "stop", "Well, ", Finish(EndReason.STOP, "stop")),
        (f"{THOUGHT}Well.", "stop", "Well.", Finish(EndReason.STOP)),
        (CALL, "stop", "", Finish(EndReason.TOOL_CALLS)),
        (f"A\n{CALL}\nB stop C", "stop", "A\n\nB ", Finish(EndReason.TOOL_CALLS, "stop")),
        (f"So A\n{CALL}\nB", "A\n\nB", "So A\n\nB", Finish(EndReason.TOOL_CALLS)),
        ("I sto", "stop", "I sto", Finish(EndReason.STOP)),
    ],
)
def test_stop_strings_act_in_one_run_of_visible_text(text: str, stop: str, shown: str, finish: Finish) -> None:
    events, ended, _ = read(reader([stop]), text)
    assert visible(events) == shown
    assert ended == finish


def test_a_stop_string_before_the_least_number_of_tokens_is_text() -> None:
    assert visible(read(reader(["a"], min_tokens=4), "a b c d a b")[0]) == "a b c d "


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("Hello.", ""),
        (CALL, ""),
        (f"{THOUGHT}Hello.", THOUGHT),
        (f"{THOUGHT}{CALL}", THOUGHT),
        ("<think>\nNo end", "<think>\nNo end"),
    ],
)
def test_the_body_is_the_reasoning_with_its_markers_and_the_space_behind_them(text: str, body: str) -> None:
    reading = reader()
    read(reading, text)
    assert reading.body is not None
    recipe = tool_recipe()
    ids = recipe.plain_ids(text)
    assert recipe.decode(ids[: reading.body]) == body
    assert reading.reasoning_tokens <= reading.body


def test_channels_have_no_body() -> None:
    answer = "⟦<|channel|>⟧commentary⟦<|message|>⟧So.⟦<|end|>⟧⟦<|start|>⟧assistant⟦<|channel|>⟧analysis⟦<|message|>⟧Hm"
    reading = ParsedReader(answers.parser("harmony"), lambda _: False, channels=True)
    reading.push(answers.ids("harmony", answer))
    assert reading.reasoning_tokens > 0
    assert reading.body == 0


def test_a_cut_answer_ends_by_length_and_says_what_was_cut() -> None:
    events, ended, _ = read(reader(), CALL[:-20], reason=FinishReason.LENGTH)
    assert ended == Finish(EndReason.LENGTH)
    assert [call.name for call in calls_of(events)] == ["f"]
    assert [event.kind for event in events if isinstance(event, Problem)] == [ProblemKind.TRUNCATED_CALL]


def test_a_call_that_cannot_be_read_ends_with_an_error() -> None:
    events, ended, _ = read(reader(), CALL.replace('"stop"', "stop"))
    assert ended == Finish(EndReason.ERROR)
    assert calls_of(events)[0].arguments.startswith('{"a": ')


@pytest.mark.parametrize("broken", [CALL.replace('"stop"', "stop"), '<tool_call>{"name": "f"<tool></tool_call>'])
def test_a_stop_string_behind_a_call_that_cannot_be_read_makes_no_success_of_it(broken: str) -> None:
    events, ended, _ = read(reader(["Ulm"]), f"{broken}\nOff to Ulm.")
    assert ended == Finish(EndReason.ERROR, "Ulm")
    assert [event.kind for event in events if isinstance(event, Problem)] == [ProblemKind.INVALID_ARGUMENTS]
    assert read(reader(["Ulm"]), f"{CALL}\n{broken}\nUlm")[1] == Finish(EndReason.ERROR, "Ulm")
    assert read(reader(["Ulm"]), f"{CALL}\n{CALL}\nUlm")[1] == Finish(EndReason.TOOL_CALLS, "Ulm")


PARTS = st.sampled_from([THOUGHT, CALL, "Well. ", "stop", "sto", "p", "\n", "é", "<tool_call>\n", "</think>", "  "])


@settings(deadline=None, derandomize=True, database=None, max_examples=80)
@given(
    text=st.lists(PARTS, min_size=1, max_size=6).map("".join),
    sizes=st.lists(st.integers(0, 9), max_size=20),
    stop=st.sampled_from([[], ["stop"], ["stop", "Well"]]),
)
def test_no_cut_of_the_stream_matters(text: str, sizes: list[int], stop: list[str]) -> None:
    def plain(found: tuple[list[Event], Finish, int]) -> tuple[str, str, list[str], Finish, int]:
        events, finish, taken = found
        reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
        return visible(events), reasoning, [call.arguments for call in calls_of(events)], finish, taken

    one, other = reader(stop), reader(stop)
    assert plain(read(one, text)) == plain(read(other, text, sizes))
    assert (one.body, one.reasoning_tokens) == (other.body, other.reasoning_tokens)
