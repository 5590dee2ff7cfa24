"""Strict mode says which marker a client wrote, and where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.families import Family, property_test

from forebay.core.errors import ConversationError
from forebay.recipe import Conversation, KeptAnswer, Message, ToolCall, ToolSpec
from forebay.recipe.markers import FoundMarker, MarkerFinder

_FINDER = MarkerFinder(("<|im_start|>", "<|im_end|>", "<|im_end|>x", "<\uff5cUser\uff5c>", "[INST]", "end", " "))


@pytest.mark.parametrize(
    ("text", "offset", "marker"),
    [
        ("<|im_start|>", 0, "<|im_start|>"),
        ("a <|im_<|im_start|>", 7, "<|im_start|>"),
        ("<|im_end|>xy", 0, "<|im_end|>x"),
        ("<|im_end|>y", 0, "<|im_end|>"),
        ("é<\uff5cim_start\uff5c>", 1, "<|im_start|>"),
        ("\uff1c|im_start|\uff1e", 0, "<|im_start|>"),
        ("x<|im\u200b_sta\u2060rt|>", 1, "<|im_start|>"),
        ("<|User|>", 0, "<\uff5cUser\uff5c>"),
        ("\uff3bINST\uff3d", 0, "[INST]"),
        ("ﬁrst [INST]", 5, "[INST]"),
        ("the end", 4, "end"),
        ("<|im_star|>", None, ""),
        ("< |im_start|>", None, ""),
        ("", None, ""),
    ],
)
def test_found_where_it_is(text: str, offset: int | None, marker: str) -> None:
    assert _FINDER.find(text) == (None if offset is None else FoundMarker(offset, marker))


def test_nothing_is_found_without_spellings() -> None:
    assert MarkerFinder(()).find("<|im_start|>") is None


@property_test
@given(st.text(), st.sampled_from(["<|im_start|>", "[INST]"]), st.text())
def test_found_in_any_text(before: str, marker: str, behind: str) -> None:
    found = _FINDER.find(before + marker + behind)
    assert found is not None
    assert found.offset <= len(before)


_BAD = "a<|im_start|>"
_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"x": {"enum": ["ok", _BAD]}}}


@pytest.mark.parametrize(
    ("conversation", "pointer", "offset"),
    [
        (Conversation([Message("user", _BAD)]), "/messages/0/content", 1),
        (Conversation([Message("system", "x"), Message("user", ["ok", _BAD])]), "/messages/1/content/1/text", 1),
        (Conversation([Message("assistant", "", _BAD)]), "/messages/0/reasoning_content", 1),
        (
            Conversation([Message("assistant", "", calls=[ToolCall(_BAD, "f", "{}")])]),
            "/messages/0/tool_calls/0/id",
            1,
        ),
        (
            Conversation([Message("assistant", "", calls=[ToolCall("", _BAD, "{}")])]),
            "/messages/0/tool_calls/0/function/name",
            1,
        ),
        (
            Conversation([Message("assistant", "", calls=[ToolCall("", "f", f'{{"{_BAD}": 1}}')])]),
            "/messages/0/tool_calls/0/function/arguments",
            3,
        ),
        (
            Conversation([Message("assistant", "", calls=[ToolCall("", "f", r'{"x": "\u003c|im_start|>"}')])]),
            "/messages/0/tool_calls/0/function/arguments",
            7,
        ),
        (Conversation([Message("tool", "", call_id=_BAD)]), "/messages/0/tool_call_id", 1),
        (Conversation([Message("tool", "", name=_BAD)]), "/messages/0/name", 1),
        (Conversation([], [ToolSpec(_BAD)]), "/tools/0/function/name", 1),
        (Conversation([], [ToolSpec("f", _BAD)]), "/tools/0/function/description", 1),
        (Conversation([], [ToolSpec("f", "", _SCHEMA)]), "/tools/0/function/parameters/properties/x/enum/1", 1),
        (
            Conversation([], [ToolSpec("f", "", {"properties": {_BAD: {}}})]),
            "/tools/0/function/parameters/properties/a<|im_start|>",
            1,
        ),
    ],
)
def test_every_field_is_looked_at(conversation: Conversation, pointer: str, offset: int) -> None:
    with pytest.raises(ConversationError, match="refuses markers") as caught:
        _FINDER.check(conversation)
    assert (caught.value.pointer, caught.value.offset, caught.value.marker) == (pointer, offset, "<|im_start|>")


def test_the_servers_own_answers_are_not_looked_at() -> None:
    _FINDER.check(Conversation([Message("assistant", _BAD, kept=KeptAnswer([1]))]))


def test_a_recipe_looks_for_its_models_tokens_and_delimiters(built: dict[str, Family]) -> None:
    chatml, llama2 = built["chatml"].recipe, built["llama2"].recipe
    clean = Conversation([Message("user", "Why is [INST] there?")])
    chatml.check_markers(clean)
    with pytest.raises(ConversationError) as caught:
        llama2.check_markers(clean)
    assert (caught.value.marker, caught.value.offset) == ("[INST]", 7)
    assert chatml.find_marker("stop <|im_end|>") == FoundMarker(5, "<|im_end|>")
