"""The fuzz targets on a bounded, repeatable number of inputs; `fuzz/parsers.py` goes on where this stops."""

from __future__ import annotations

import pytest
from fuzz import targets
from fuzz.targets import BrokenPromiseError
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.recipe.parsers.json_scanner import JsonScanner

bounded = settings(max_examples=150, deadline=None, derandomize=True, database=None)

_TOKENS = [
    *(b"<tool_call>", b"</tool_call>", b"<think>", b"</think>", b"[TOOL_CALLS]", b"[ARGS]", b"<function=", b"call"),
    *(b'{"name": "look", "arguments": ', b'{"place": "', b'"}', b"}", b"{", b"[", b"]", b",", b":", b'"', b"\\"),
    *(b"1.10", b"analysis", b"commentary to=functions.look", b"final", b"json", b" name=", b' string="true">'),
    *(b" invoke", b"\n", *(bytes((byte,)) for byte in (0x00, 0x80, 0xC3, 0xF4, *range(0xF5, 0x100)))),
]
inputs = st.binary(max_size=60) | st.tuples(
    st.binary(min_size=1, max_size=1), st.lists(st.sampled_from(_TOKENS) | st.binary(max_size=3), max_size=24)
).map(lambda drawn: drawn[0] + b"".join(drawn[1]))


@bounded
@given(inputs)
def test_answers(data: bytes) -> None:
    targets.answers(data)


@bounded
@given(inputs)
def test_json(data: bytes) -> None:
    targets.json_scanner(data)


@pytest.mark.parametrize("text", ['{"a": {"b": [1, 2.5e3]}, "a": "\\u00e9"}', " [] ", "tru", '{"a": 1} x', '"\\ud800"'])
def test_json_by_hand(text: str) -> None:
    for size in range(8):
        targets.json_scanner(bytes((size,)) + text.encode())


def test_the_targets_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scanner that takes a comma before the end is found."""
    feed = JsonScanner.feed
    monkeypatch.setattr(JsonScanner, "feed", lambda self, text: feed(self, text.replace(",]", " ]")))
    with pytest.raises(BrokenPromiseError):
        targets.json_scanner(b"\x06[1,]")
