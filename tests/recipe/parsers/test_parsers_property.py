"""Answers made at random in each format: they are read back, however the stream is cut, and no ids break a parser."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.recipe.parsers.answers import CONTROL, DSML, ids, parser, read, vocabulary

from forebay.core.request import FinishReason
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

few = settings(max_examples=40, deadline=None)
MARKERS: Final = sorted({marker for markers in CONTROL.values() for marker in markers})
FORMATS: Final = sorted(CONTROL)
UNREAD: Final = (ProblemKind.MALFORMED_CALL, ProblemKind.TRUNCATED_CALL)
"""A call that can't be read is shown as text, with what its strings hold."""

words = st.sampled_from(
    ["a", "Zoë", "🙂", " ", "\n", "<", "</", "{", "}", '"', "\\", "[", "calls>", "1.10", "to=functions.x", *MARKERS]
)
prose = st.lists(words, max_size=8).map("".join)
names = st.sampled_from(["look", "run", "other_tool"])
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | prose
arguments = st.dictionaries(
    st.text("abc_ \u00e9", min_size=1, max_size=3),
    leaves | st.lists(leaves, max_size=2) | st.dictionaries(prose, leaves, max_size=2),
    max_size=3,
)
cuts = st.lists(st.integers(0, 5000), max_size=12)


@dataclass(frozen=True)
class Call:
    """A call that an answer makes."""

    name: str
    arguments: dict[str, Any] = field(hash=False)


segments = st.lists(prose | st.builds(Call, names, arguments), max_size=5)


def _hermes(parts: list[str | Call]) -> str:
    return "".join(
        part
        if isinstance(part, str)
        else f"⟦<tool_call>⟧\n{json.dumps({'name': part.name, 'arguments': part.arguments})}\n⟦</tool_call>⟧"
        for part in parts
    )


def _mistral(parts: list[str | Call]) -> str:
    return "".join(
        part if isinstance(part, str) else f"⟦[TOOL_CALLS]⟧{part.name}⟦[ARGS]⟧{json.dumps(part.arguments)}"
        for part in parts
    )


def _llama3(parts: list[str | Call]) -> str:
    calls = [part for part in parts if isinstance(part, Call)]
    if not calls:
        return "".join(["so: ", *(part for part in parts if isinstance(part, str))])
    return "; ".join(json.dumps({"name": call.name, "parameters": call.arguments}) for call in calls)


def _dsml(parts: list[str | Call]) -> str:
    return "".join(part if isinstance(part, str) else _dsml_call(part) for part in parts)


def _dsml_call(call: Call) -> str:
    mark = f"⟦{DSML}⟧"
    values = "".join(
        f'<{mark} parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">'
        f"{value if isinstance(value, str) else json.dumps(value)}</{mark} parameter>\n"
        for key, value in call.arguments.items()
    )
    return f'\n\n<{mark} calls>\n<{mark} invoke name="{call.name}">\n{values}</{mark} invoke>\n</{mark} calls>'


def _harmony(parts: list[str | Call]) -> str:
    return "⟦<|start|>⟧assistant".join(
        f"⟦<|channel|>⟧final⟦<|message|>⟧{part}⟦<|end|>⟧"
        if isinstance(part, str)
        else f"⟦<|channel|>⟧commentary to=functions.{part.name} ⟦<|constrain|>⟧json⟦<|message|>⟧"
        f"{json.dumps(part.arguments)}⟦<|call|>⟧"
        for part in parts
    )


RENDER: Final[dict[str, Callable[[list[str | Call]], str]]] = {
    "hermes": _hermes,
    "mistral": _mistral,
    "llama3": _llama3,
    "dsml": _dsml,
    "harmony": _harmony,
}


def _told(parts: list[str | Call], name: str) -> list[object]:
    """What an answer says: text without whitespace, and calls."""
    told: list[object] = []
    calls = any(isinstance(part, Call) for part in parts)
    for part in parts if name != "llama3" or not calls else [part for part in parts if isinstance(part, Call)]:
        if isinstance(part, Call):
            told.append((part.name, part.arguments))
        else:
            _add_text(told, part)
    return ["so:" + (str(told[0]) if told else "")] if name == "llama3" and not calls else told


def _heard(events: list[Event]) -> list[object]:
    heard: list[object] = []
    spelling = name = ""
    for event in events:
        match event:
            case TextDelta(text):
                _add_text(heard, text)
            case ToolCallStart(_, _, name):
                spelling = ""
            case ToolCallArguments(_, fragment):
                spelling += fragment
            case ToolCallEnd():
                heard.append((name, json.loads(spelling)))
    return heard


def _add_text(told: list[object], text: str) -> None:
    text = "".join(text.split())
    if text and told and isinstance(told[-1], str):
        told[-1] += text
    elif text:
        told.append(text)


@pytest.mark.parametrize("name", FORMATS)
@few
@given(parts=segments, places=cuts)
def test_answers_are_read_back_however_they_are_cut(name: str, parts: list[str | Call], places: list[int]) -> None:
    answer = ids(name, RENDER[name](parts))
    events, end = read(parser(name), answer)
    assert _heard(events) == _told(parts, name)
    assert read(parser(name), answer, places) == (events, end)
    assert read(parser(name), answer, range(len(answer))) == (events, end)


@pytest.mark.parametrize("name", ["hermes", "dsml"])
@few
@given(parts=segments, places=cuts)
def test_spelled_markers_are_read_however_they_are_cut(name: str, parts: list[str | Call], places: list[int]) -> None:
    text = RENDER[name](parts)
    answer = ids(name, text, tokens=False)
    once = read(parser(name, tokens=False), answer)
    assert read(parser(name, tokens=False), answer, places) == once
    assert read(parser(name, tokens=False), answer, range(len(answer))) == once


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
@few
@given(data=st.data(), places=cuts)
def test_no_ids_break_a_parser(name: str, reason: FinishReason, data: st.DataObject, places: list[int]) -> None:
    vocab = vocabulary(name)
    pieces = st.one_of(
        st.sampled_from(sorted(vocab.control.values())).map(lambda token: [token]),
        st.integers(-1, vocab.size + 1).map(lambda token: [token]),
        st.sampled_from(['{"name": "look", "arguments": {"place": ', '"x"', "}", " calls>\n<", "</", "look", "<"]).map(
            vocab.plain_ids
        ),
    )
    answer = [token for piece in data.draw(st.lists(pieces, max_size=40)) for token in piece]
    events, end = read(parser(name), answer, reason=reason)
    assert read(parser(name), answer, places, reason) == (events, end)
    assert read(parser(name), answer, range(len(answer)), reason) == (events, end)
    _check_order(events)
    if not any(isinstance(event, Problem) and event.kind in UNREAD for event in events):
        shown = "".join(event.text for event in events if isinstance(event, TextDelta | ReasoningDelta))
        assert not any(marker in shown for marker in vocab.control)


def _check_order(events: list[Event]) -> None:
    """Calls begin in order, and one that ends is valid JSON; one that doesn't is reported."""
    spelling: dict[int, str] = {}
    ended: set[int] = set()
    for event in events:
        match event:
            case ToolCallStart(index):
                assert index == len(spelling)
                spelling[index] = ""
            case ToolCallArguments(index, fragment):
                assert index == len(spelling) - 1
                assert index not in ended
                spelling[index] += fragment
            case ToolCallEnd(index):
                ended.add(index)
                assert isinstance(json.loads(spelling[index]), dict)
    reported = {event.index for event in events if isinstance(event, Problem)}
    assert spelling.keys() - ended <= reported


@pytest.mark.parametrize("name", FORMATS)
@few
@given(text=prose, places=cuts)
def test_an_answer_without_markers_keeps_every_character(name: str, text: str, places: list[int]) -> None:
    if name in ("llama3", "harmony"):
        text = "so: " + text
    events, _ = read(parser(name), ids(name, text), places)
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert shown == text
