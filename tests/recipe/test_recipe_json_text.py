"""JSON as templates write it: spaced as by a JSON writer, with numbers, keys and their order as they were sent."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.families import property_test

from forebay.recipe.conversation import ToolSpec
from forebay.recipe.templates.json_text import inner, respaced, tool_object, written

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=10),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=5), inside, max_size=4),
    max_leaves=12,
)


@property_test
@given(value=_VALUES, indent=st.none() | st.integers(0, 3), ascii_only=st.booleans())
def test_any_spelling_becomes_the_writers_own(value: object, indent: int | None, ascii_only: bool) -> None:
    sent = json.dumps(value, indent=indent, ensure_ascii=ascii_only, separators=None if indent else (",", ":"))
    assert respaced(sent) == json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ('{"a":1.10,"b":1e3,"a":-0}', '{"a": 1.10, "b": 1e3, "a": -0}'),
        ("[ 12345678901234567890123 ,\n{ } ]", "[12345678901234567890123, {}]"),
        ("9" * 5000, "9" * 5000),
        ('{"a":": , \\" \\u00e9\\n"}', '{"a": ": , \\" é\\n"}'),
        ('"\\ud800"', '"\\ud800"'),
        ("", "{}"),
        (" \n", "{}"),
        ("not json", '"not json"'),
        ('{"a": ', '"{\\"a\\": "'),
        ("[" * 100_000, written("[" * 100_000)),
    ],
)
def test_what_is_kept_and_what_is_no_json(sent: str, shown: str) -> None:
    assert respaced(sent) == shown


@given(text=st.text())
def test_an_inner_text_is_what_stands_between_quotes(text: str) -> None:
    assert json.loads(f'"{inner(text)}"') == text


def test_a_tool_says_what_the_client_said() -> None:
    bare = {"type": "function", "function": {"name": "run"}}
    assert tool_object(ToolSpec("run")) == bare
    assert tool_object(ToolSpec("run"), filled=True)["function"] == {"name": "run", "description": "", "parameters": {}}
    whole = tool_object(ToolSpec("run", "Runs.", {"type": "object"}))["function"]
    assert list(whole) == ["name", "description", "parameters"]
