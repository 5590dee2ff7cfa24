"""JSON as it comes: what is complete, what is wrong and where, however it is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.recipe.parsers.json_texts import is_json, scan

from forebay.recipe.parsers.json_object import ObjectReader
from forebay.recipe.parsers.json_scanner import MAX_DEPTH, JsonScanner

few = settings(max_examples=60, deadline=None)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@few
@given(values, st.integers(1, 9), st.sampled_from([None, 1]), st.booleans(), st.integers(0))
def test_accepts_whole_values_and_nothing_less(
    value: object, size: int, indent: int | None, ascii_only: bool, cut: int
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    scanner, taken = scan(text + " tail", size)
    assert (scanner.done, taken) == (True, len(text))
    short = text[: cut % len(text)]
    scanner, _ = scan(short, size)
    assert not scanner.failed
    scanner.end()
    assert scanner.done == is_json(short)


@few
@given(st.text(alphabet='{}[]",:0123456789.-+eE\\ utrfalsn\n\x01'), st.integers(1, 5))
def test_agrees_with_the_standard_library(text: str, size: int) -> None:
    scanner, taken = scan(text, size)
    if not scanner.failed:
        scanner.end()
    complete = scanner.done and not text[taken:].strip(" \n")
    assert complete == is_json(text)


def test_nesting_is_bounded() -> None:
    scanner = JsonScanner()
    assert scanner.feed("[" * 100_000) == MAX_DEPTH
    assert scanner.failed


@pytest.mark.parametrize("text", ["[1,]", "{,}", '{"a" 1}', "[01]", "tru e", '"\n"', '"\\x"', "-", "+1", "{]", "1.}"])
def test_refuses_what_json_is_not(text: str) -> None:
    scanner = JsonScanner()
    scanner.feed(text)
    if not scanner.failed:
        scanner.end()
    assert scanner.failed


@few
@given(st.dictionaries(st.text(), values, max_size=5), st.integers(1, 9))
def test_object_gives_members_in_their_own_spelling(value: dict[str, Any], size: int) -> None:
    text = json.dumps(value, indent=1)
    members: dict[str, str] = {}
    complete: list[str] = []

    def take(key: str, piece: str, done: bool) -> None:
        members[key] = members.get(key, "") + piece
        if done:
            complete.append(key)

    reader = ObjectReader(take)
    for at in range(0, len(text), size):
        reader.feed(text[at : at + size])
    assert reader.done
    assert complete == reader.keys == list(value)
    assert {key: json.loads(spelling) for key, spelling in members.items()} == value


def test_object_keeps_numbers_and_repeated_keys() -> None:
    found: list[tuple[str, str]] = []
    reader = ObjectReader(lambda key, piece, done: found.append((key, piece)))
    reader.feed('{"a": 1.10, "a": 12345678901234567890123}')
    assert [piece for _, piece in found if piece] == ["1.10", "12345678901234567890123"]
    assert reader.keys == ["a", "a"]
