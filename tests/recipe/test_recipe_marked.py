"""Marked strings give the same characters as plain ones, and each character keeps the mark of who wrote it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.families import property_test

from forebay.recipe.jinja.formatting import braces, percent
from forebay.recipe.jinja.marked import MAX_LENGTH, TEMPLATE, UNKNOWN, Marked, concat, marks_of, runs

_ALPHABET = "ab \n\tİßéA."
_MARKS = {character: 2 + at for at, character in enumerate(_ALPHABET)}


def _mark(text: str) -> Marked:
    """Marks that follow from the characters, so a moved character can be checked wherever it turns up."""
    return Marked(text, bytes(_MARKS[character] for character in text))


texts = st.text(_ALPHABET, max_size=12)
_OPERATIONS: dict[str, Callable[[str, str], object]] = {
    "add": lambda a, b: a + b,
    "slice": lambda a, b: a[len(b) % 5 : len(a) - len(b) % 3],
    "reversed": lambda a, b: a[::-1],
    "times": lambda a, b: a * (len(b) % 4),
    "strip": lambda a, b: a.strip(),
    "strip characters": lambda a, b: a.strip(b or None),
    "lstrip": lambda a, b: a.lstrip(b or None),
    "rstrip": lambda a, b: a.rstrip(b or None),
    "removeprefix": lambda a, b: a.removeprefix(b),
    "removesuffix": lambda a, b: a.removesuffix(b),
    "replace": lambda a, b: a.replace("a", b),
    "replace once": lambda a, b: a.replace("ab", b, 1),
    "split": lambda a, b: a.split(),
    "split at": lambda a, b: a.split(b or "a"),
    "split once": lambda a, b: a.split(None, 1),
    "rsplit": lambda a, b: a.rsplit(None, 1),
    "rsplit at": lambda a, b: a.rsplit(b or "a", 2),
    "splitlines": lambda a, b: a.splitlines(),
    "splitlines with ends": lambda a, b: a.splitlines(True),
    "partition": lambda a, b: a.partition(b or "a"),
    "rpartition": lambda a, b: a.rpartition(b or "a"),
    "join": lambda a, b: a.join([b, b, a]),
    "iterate": lambda a, b: list(a),
}


@pytest.mark.parametrize("name", sorted(_OPERATIONS))
@property_test
@given(first=texts, second=texts)
def test_an_operation_moves_characters_with_their_marks(name: str, first: str, second: str) -> None:
    operation = _OPERATIONS[name]
    got, expected = operation(_mark(first), _mark(second)), operation(first, second)
    assert got == expected
    for piece in got if isinstance(got, list | tuple) else [got]:
        assert isinstance(piece, Marked)
        assert piece.marks == bytes(_MARKS[character] for character in piece)


@property_test
@given(first=texts, second=texts)
def test_case_changes_keep_the_origin_of_each_run(first: str, second: str) -> None:
    joined = Marked.of(first, 3) + Marked.of(second, 4)
    for change in (str.upper, str.lower):
        got = getattr(joined, change.__name__)()
        assert got.marks == bytes([3]) * len(change(first)) + bytes([4]) * len(change(second)) or len(got) == len(
            joined
        )
        assert str.__str__(got) == change(first + second) or len(change(first + second)) != len(joined)


@property_test
@given(texts)
def test_what_is_not_followed_is_unknown(text: str) -> None:
    """Methods that aren't overridden give plain strings, which no control token is made from."""
    marked = Marked.of(text, TEMPLATE)
    for got in (
        marked.center(30),
        marked.zfill(20),
        marked.swapcase(),
        marked.expandtabs(),
        "".join([marked, "x"]),
    ):
        assert set(marks_of(got)) <= {UNKNOWN}


def test_a_plain_string_beside_a_marked_one_stays_unknown() -> None:
    assert ("user" + Marked.of("t", TEMPLATE)).marks == bytes([UNKNOWN] * 4 + [TEMPLATE])
    assert (Marked.of("t", TEMPLATE) + "user").marks == bytes([TEMPLATE] + [UNKNOWN] * 4)


def test_runs_split_where_the_mark_changes() -> None:
    assert list(runs(Marked.of("ab", 1) + Marked.of("c", 3) + Marked.of("d", 3))) == [("ab", 1), ("cd", 3)]
    assert list(runs("")) == []


def test_a_separator_inside_the_text_is_not_taken_for_a_piece() -> None:
    """The second piece equals the separator's end; it has to have its own marks, not those of the separator."""
    text = Marked.of("x", 3) + Marked.of("ab", TEMPLATE) + Marked.of("b", 3)
    assert [piece.marks for piece in text.split("ab")] == [b"\x03", b"\x03"]


def test_marks_have_to_fit() -> None:
    with pytest.raises(ValueError, match="1 marks for 2 characters"):
        Marked("ab", b"\x01")


def test_strings_are_bounded() -> None:
    half = Marked.of("x", TEMPLATE) * (MAX_LENGTH // 2 + 1)
    with pytest.raises(OverflowError):
        concat([half, half])
    with pytest.raises(OverflowError):
        half * 2


def test_percent_and_braces_keep_marks() -> None:
    value = Marked.of("<v>", 3)
    assert percent(Marked.of("a%sb%%", TEMPLATE), value).marks == bytes([1, 3, 3, 3, 1, UNKNOWN])
    assert percent(Marked.of("%(k)s!", TEMPLATE), {"k": value}) == "<v>!"
    assert percent(Marked.of("%s %d", TEMPLATE), (value, 7.5)) == "<v> 7"
    assert braces(Marked.of("{}{}{{x}}", TEMPLATE), value, 1) == "<v>1{x}"
    assert braces(Marked.of("{0}{k}{0}", TEMPLATE), value, k="k") == "<v>k<v>"
    assert braces(Marked.of("a{}", TEMPLATE), value).marks == bytes([1, 3, 3, 3])


@pytest.mark.parametrize("pattern", ["%5s", "%r", "%", "%999999999d"])
def test_other_percent_conversions_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="not supported"):
        percent(Marked.of(pattern, TEMPLATE), "x")


@pytest.mark.parametrize("pattern", ["{:>99999999}", "{0.__class__}", "{", "{!r}"])
def test_other_brace_fields_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="not supported"):
        braces(Marked.of(pattern, TEMPLATE), "x")
