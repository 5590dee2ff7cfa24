"""Ids to text: the same wherever the stream is cut, the same as the library's own decoder, never half a character."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.families import Family, property_test

from forebay.recipe import Recipe

_NAMES = ("chatml", "gemma", "llama2", "mistral-v3", "mistral-tekken")


@pytest.fixture(scope="module", params=_NAMES)
def case(request: pytest.FixtureRequest, built: dict[str, Family]) -> Family:
    return built[request.param]


def _cut(ids: Sequence[int], places: Sequence[int]) -> Iterator[Sequence[int]]:
    edges = sorted({0, len(ids), *(place % (len(ids) + 1) for place in places)})
    return (ids[start:end] for start, end in pairwise(edges))


def _streamed(recipe: Recipe, ids: Sequence[int], places: Sequence[int]) -> list[str]:
    detokenizer = recipe.detokenizer()
    return [*(detokenizer.push(part) for part in _cut(ids, places)), detokenizer.finish()]


@property_test
@given(data=st.data())
def test_any_ids_decode_alike_however_they_come(case: Family, data: st.DataObject) -> None:
    recipe = case.recipe
    ids = data.draw(st.lists(st.integers(0, recipe.vocab_size - 1), max_size=20))
    places = data.draw(st.lists(st.integers(0, 20), max_size=8))
    assert "".join(_streamed(recipe, ids, places)) == recipe.decode(ids)


@property_test
@given(text=st.text(max_size=20), places=st.lists(st.integers(0, 60), max_size=10))
def test_text_comes_back_whole_and_no_piece_has_half_a_character(case: Family, text: str, places: list[int]) -> None:
    recipe = case.recipe
    ids = recipe.plain_ids(text)
    pieces = _streamed(recipe, ids, places)
    assert "".join(pieces) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


@property_test
@given(data=st.data())
def test_equals_the_library(case: Family, data: st.DataObject) -> None:
    """For text that was encoded: the library's decoder with control tokens left out."""
    text = data.draw(st.text(st.sampled_from("aé東🙂 \n<|>[INST]fox1"), max_size=20))
    ids = case.recipe.plain_ids(text)
    assert case.recipe.decode(ids) == case.whole.decode(ids, skip_special_tokens=True)


def test_half_a_character_waits(built: dict[str, Family]) -> None:
    recipe = built["chatml"].recipe
    ids = recipe.plain_ids("🙂")
    assert len(ids) > 1
    detokenizer = recipe.detokenizer()
    assert [detokenizer.push([token]) for token in ids] == [*[""] * (len(ids) - 1), "🙂"]
    assert detokenizer.finish() == ""


def test_an_answer_that_ends_within_a_character(built: dict[str, Family]) -> None:
    recipe = built["chatml"].recipe
    ids = recipe.plain_ids("a🙂")[:-1]
    detokenizer = recipe.detokenizer()
    assert detokenizer.push(ids) == "a"
    assert detokenizer.finish() == "\ufffd"
    assert recipe.decode(ids) == "a\ufffd"


def test_control_tokens_give_no_text_even_within_a_character(built: dict[str, Family]) -> None:
    recipe = built["chatml"].recipe
    end = built["chatml"].id_of("<|im_end|>")
    first, *rest = recipe.plain_ids("é")
    assert recipe.decode([end, first, end, *rest, end]) == "é"
    assert recipe.token_text(end) == "<|im_end|>"
    assert recipe.token_bytes(first) == "é".encode()[: len(recipe.token_bytes(first))]


def test_the_first_space_belongs_to_the_tokenizer(built: dict[str, Family]) -> None:
    """An answer of its own loses it; one that goes on behind bare text keeps it; behind a control token it is lost."""
    recipe = built["llama2"].recipe
    ids = recipe.plain_ids("fox")
    assert recipe.token_bytes(ids[0]).startswith(b" ")
    prompt = recipe.encode_text("the")
    assert recipe.detokenizer().push(ids) == "fox"
    assert recipe.detokenizer(prompt.ids).push(ids) == " fox"
    assert recipe.detokenizer(prompt.ids[:1]).push(ids) == "fox"


def test_unknown_ids_are_empty(built: dict[str, Family]) -> None:
    recipe = built["llama2"].recipe
    assert recipe.token_bytes(recipe.vocab_size) == b""
    assert recipe.token_bytes(-1) == b""
    assert recipe.decode([recipe.vocab_size + 5]) == ""


def test_a_push_costs_what_is_new(built: dict[str, Family], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token is looked at once, however long the answer is."""
    recipe = built["chatml"].recipe
    ids = recipe.plain_ids("the fox " * 50)
    table = {token: recipe.token_bytes(token) for token in ids}
    looked: list[int] = []

    def look(_: object, token: int) -> bytes:
        looked.append(token)
        return table[token]

    monkeypatch.setattr("forebay.recipe.vocabulary.Vocabulary.token_bytes", look)
    detokenizer = recipe.detokenizer()
    for token in ids:
        detokenizer.push([token])
    assert looked == ids
