"""Stop strings: found across token borders, never shown in part, the same wherever the stream is cut."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.families import Family, property_test

from forebay.recipe import Recipe, TextStream


@pytest.fixture(scope="module")
def recipe(built: dict[str, Family]) -> Recipe:
    return built["chatml"].recipe


def _letters(recipe: Recipe, text: str) -> list[int]:
    """One token a letter."""
    return [token for letter in text for token in recipe.plain_ids(letter)]


def _run(
    recipe: Recipe, ids: Sequence[int], stop: Sequence[str], step: int = 1, min_tokens: int = 0
) -> tuple[str, str | None, int]:
    """Everything shown, the stop string, and how many tokens were taken."""
    stream = TextStream(recipe.detokenizer(), stop, min_tokens)
    shown, taken = "", 0
    for start in range(0, len(ids), step):
        delta = stream.push(ids[start : start + step])
        shown += delta.text
        taken += delta.tokens
        if delta.stopped is not None:
            break
    end = stream.finish()
    return shown + end.text, end.stopped, taken


def _expected(text: str, stop: Sequence[str]) -> tuple[str, str | None]:
    """By definition: the first place where a stop string is complete, and of those the longest."""
    for end in range(1, len(text) + 1):
        found = [string for string in stop if string and text[:end].endswith(string)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


@property_test
@given(
    text=st.text("abé", max_size=14),
    stop=st.lists(st.text("abé", max_size=4), max_size=3),
    step=st.integers(1, 5),
)
def test_equals_the_definition_for_any_cut(recipe: Recipe, text: str, stop: list[str], step: int) -> None:
    shown, stopped, _ = _run(recipe, _letters(recipe, text), stop, step)
    assert (shown, stopped) == _expected(text, stop)


@property_test
@given(text=st.text("ab", max_size=12), stop=st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3))
def test_no_part_of_a_stop_string_is_shown_early(recipe: Recipe, text: str, stop: list[str]) -> None:
    """At every moment what was shown is the beginning of what will have been shown, and no open suffix of it."""
    final, _ = _expected(text, stop)
    stream = TextStream(recipe.detokenizer(), stop)
    shown = ""
    for token in _letters(recipe, text):
        delta = stream.push([token])
        shown += delta.text
        assert final.startswith(shown)
        if delta.stopped is not None:
            break


def test_across_tokens_and_within_one(recipe: Recipe) -> None:
    assert _run(recipe, _letters(recipe, "one STOP two"), ["STOP"]) == ("one ", "STOP", 8)
    ids = recipe.plain_ids(" fox jumps")
    assert _run(recipe, ids, ["ox"]) == (
        " f",
        "ox",
        1 + [b"ox" in recipe.token_bytes(t) or b"x" in recipe.token_bytes(t) for t in ids].index(True),
    )


def test_what_may_become_a_stop_string_is_held_and_then_released(recipe: Recipe) -> None:
    stream = TextStream(recipe.detokenizer(), ["abc"])
    assert [stream.push([token]).text for token in _letters(recipe, "xabab")] == ["x", "", "", "ab", ""]
    assert stream.finish().text == "ab"


def test_the_stop_string_that_is_complete_first_wins(recipe: Recipe) -> None:
    assert _run(recipe, _letters(recipe, "abcd"), ["abcd", "bc"])[:2] == ("a", "bc")
    assert _run(recipe, _letters(recipe, "abcd"), ["cd", "bcd"])[:2] == ("a", "bcd")


def test_the_first_complete_one_wins_within_a_token_too(recipe: Recipe) -> None:
    ids = recipe.plain_ids(" helpful")
    assert len(ids) == 1
    assert _run(recipe, ids, ["elpf", "lp"])[:2] == (" he", "lp")


def test_after_a_stop_nothing_is_shown_or_counted(recipe: Recipe) -> None:
    stream = TextStream(recipe.detokenizer(), ["b"])
    first = stream.push(_letters(recipe, "abc"))
    assert (first.text, first.stopped, first.tokens) == ("a", "b", 2)
    later = stream.push(_letters(recipe, "d"))
    assert (later.text, later.stopped, later.tokens) == ("", "b", 0)
    assert stream.finish().text == ""


def test_min_tokens_lets_early_stop_strings_pass(recipe: Recipe) -> None:
    ids = _letters(recipe, "a.b.c.d")
    assert _run(recipe, ids, ["."], min_tokens=0)[0] == "a"
    assert _run(recipe, ids, ["."], min_tokens=2)[0] == "a"
    assert _run(recipe, ids, ["."], min_tokens=3)[0] == "a.b"
    assert _run(recipe, ids, ["."], min_tokens=3, step=7) == ("a.b", ".", 4)
    assert _run(recipe, ids, ["."], min_tokens=99)[:2] == ("a.b.c.d", None)


def test_a_stop_string_in_the_bytes_that_are_no_text(recipe: Recipe) -> None:
    """U+FFFD that only the end of the answer makes can complete a stop string."""
    ids = recipe.plain_ids("a🙂")[:-1]
    assert _run(recipe, ids, ["\ufffd"])[:2] == ("a", "\ufffd")


def test_without_stop_strings_text_passes_through(recipe: Recipe) -> None:
    assert _run(recipe, recipe.plain_ids("a fox"), ["", ""], 2) == ("a fox", None, len(recipe.plain_ids("a fox")))
