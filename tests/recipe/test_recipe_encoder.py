"""Which ids come from which piece, and that nothing is encoded twice."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.families import Family, property_test

from forebay.core.prompt import Origin
from forebay.recipe.encoder import PromptEncoder
from forebay.recipe.hf_tokenizer import hf_parts
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.run_cache import RunCache
from forebay.recipe.vocabulary import EncodedRun, Vocabulary

_PARTS = st.lists(
    st.sampled_from(["a", " the", "fox", "\n", "é", "東京", "🙂", " ", "\u200b", ".", "\n\n", ""]), max_size=4
)
_ORIGINS = st.sampled_from([None, Origin.USER, Origin.TOOL])


class _Counting(Vocabulary):
    """Counts the characters that are encoded."""

    characters = 0

    def plain_batch(self, texts: Sequence[str], *, continued: bool = False) -> list[list[int]]:
        self.characters += sum(map(len, texts))
        return super().plain_batch(texts, continued=continued)

    def plain_runs(self, texts: Sequence[str], *, continued: bool = False) -> list[EncodedRun]:
        self.characters += sum(map(len, texts))
        return super().plain_runs(texts, continued=continued)


def _piece(text: str, origin: Origin | None) -> Piece:
    return Words(text) if origin is None else Text(text, origin)


@pytest.mark.parametrize("name", ["chatml", "llama2", "mistral-v3"])
@property_test
@given(drawn=st.lists(st.tuples(_PARTS.map("".join), _ORIGINS), max_size=5))
def test_ids_and_origins_are_those_of_the_whole_run(
    built: dict[str, Family], name: str, drawn: list[tuple[str, Origin | None]]
) -> None:
    """Against a plain rule: a token is of the first text that it touches, of the template when it touches none."""
    vocabulary = Vocabulary(hf_parts(built[name].folder))
    run = [_piece(text, origin) for text, origin in drawn]
    first = next(iter(vocabulary.control.values()))
    encoder = PromptEncoder(vocabulary)
    prompt = encoder.encode([Control(first), *run])
    assert encoder.encode([Control(first), *run]) == prompt
    shown = {place: span.origin for span in prompt.spans for place in range(span.start, span.end)}
    assert sorted(shown) == list(range(len(prompt)))
    owners = [origin or Origin.TEMPLATE for text, origin in drawn for _ in text]
    closed = any(origin is None and text.endswith("\n") for text, origin in drawn)
    if closed or not owners:
        return
    ids, offsets = vocabulary.plain_encoding("".join(text for text, _ in drawn))
    at = prompt.ids.index(first) + 1
    assert prompt.ids[at:] == ids
    for place, (start, end) in enumerate(offsets):
        touched = [owner for owner in owners[start:end] if owner is not Origin.TEMPLATE]
        assert shown[at + place] is (touched[0] if touched else Origin.TEMPLATE)


def test_the_next_turn_encodes_only_what_is_new(built: dict[str, Family]) -> None:
    vocabulary = _Counting(hf_parts(built["chatml"].folder))
    encoder = PromptEncoder(vocabulary)
    start = vocabulary.control_id("<|im_start|>")
    history: list[Piece] = []
    for turn in range(5):
        history += [Control(start), Words("user\n"), Text(f"question {turn} " * 50, Origin.USER), Words("\n")]
    first = encoder.encode(history)
    vocabulary.characters = 0
    more = [*history, Control(start), Words("user\n"), Text("And now?", Origin.USER)]
    assert encoder.encode(more).ids[: len(first)] == first.ids
    assert 0 < vocabulary.characters <= len("user\nAnd now?")


def test_long_texts_are_encoded_as_short_ones_are(built: dict[str, Family]) -> None:
    """They take another way through the library."""
    for name in ("chatml", "llama2"):
        vocabulary = Vocabulary(hf_parts(built[name].folder))
        line = "the fox wrote: émile went to 東京 🙂.\n"
        once, many = vocabulary.plain_batch([line]), vocabulary.plain_batch([line] * 200)
        assert many == once * 200
        [run] = vocabulary.plain_runs([line])
        assert [each.ids for each in vocabulary.plain_runs([line] * 200)] == [run.ids] * 200


def test_the_cache_forgets_the_oldest_beyond_its_limit() -> None:
    cache = RunCache(limit=2000)
    ids = [(array("I", [1]), Origin.USER)]
    for key in ("a", "b", "c"):
        cache.put(key, ids, 50)
    assert cache.get("a") is ids
    for number in range(4):
        cache.put(number, ids, 50)
    assert cache.get("a") is ids
    assert cache.get("b") is None
    cache.put("large", ids, 1000)
    assert cache.get("large") is None
    for _ in range(20):
        cache.put("a", ids, 50)
    assert cache.get(3) is ids
