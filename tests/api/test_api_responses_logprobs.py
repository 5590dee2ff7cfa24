"""Which tokens' log probabilities stand beside a text, however the answer was cut into tokens and steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.families import property_test

from forebay.api.responses_logprobs import TextLogprobs
from forebay.core.messages import TokenLogprobs
from forebay.recipe.parsers import Event, ReasoningDelta, TextDelta, ToolCallArguments, ToolCallEnd


@dataclass
class Pieces:
    """Stands for a recipe: token i has the bytes of piece i."""

    pieces: list[bytes]

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id]


def reader(*pieces: str | bytes) -> TextLogprobs:
    """A reader of an answer that has these tokens, in this order."""
    known = Pieces([piece.encode() if isinstance(piece, str) else piece for piece in pieces])
    return TextLogprobs(cast("Any", known))


def tokens(*ids: int) -> list[TokenLogprobs]:
    return [TokenLogprobs(i, -0.5, []) for i in ids]


def beside(texts: TextLogprobs, event: Event) -> list[str]:
    """The tokens that an event gets."""
    return [entry["token"] for entry in texts.of(event)]


def test_markers_and_reasoning_are_passed_over() -> None:
    texts = reader("<think>", "so", "</think>", "\n\n", "Hi", " you")
    texts.push(tokens(0, 1, 2, 3, 4))
    assert beside(texts, ReasoningDelta("so")) == []
    assert beside(texts, TextDelta("Hi")) == ["Hi"]
    texts.push(tokens(5))
    assert beside(texts, TextDelta(" you")) == [" you"]


def test_tokens_wait_for_text_that_is_held_back() -> None:
    texts = reader("a ", "<", "b", '{"x"', ": 1}")
    texts.push(tokens(0))
    assert beside(texts, TextDelta("a")) == ["a "]
    texts.push(tokens(1))
    texts.push(tokens(2))
    assert beside(texts, TextDelta(" <b")) == ["<", "b"], "the space was a token's whose text had come"
    texts.push(tokens(3, 4))
    assert beside(texts, ToolCallArguments(0, '{"x": 1}')) == []
    assert beside(texts, ToolCallEnd(0)) == []


def test_a_character_of_several_tokens_has_them_all() -> None:
    texts = reader(b"\xe6\x9d", b"\xb1!", "x")
    texts.push(tokens(0))
    texts.push(tokens(1))
    assert len(beside(texts, TextDelta("\u6771!"))) == 2


def test_without_log_probabilities_there_are_none() -> None:
    assert beside(reader("a"), TextDelta("a")) == []


@property_test
@given(st.lists(st.text(st.sampled_from("ab \u6771"), min_size=1, max_size=3), min_size=1), st.data())
def test_all_tokens_of_a_text_are_there_once(pieces: list[str], data: st.DataObject) -> None:
    texts = reader(*pieces)
    at, got = 0, []
    while at < len(pieces):
        step = data.draw(st.integers(1, 3))
        texts.push(tokens(*range(at, min(at + step, len(pieces)))))
        got += beside(texts, TextDelta("".join(pieces[at : at + step])))
        at += step
    assert got == pieces
