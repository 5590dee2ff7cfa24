"""What is fuzzed: the parsers of answers and the JSON scanner, each as a function of bytes that raises when a promise
is broken. `fuzz/parsers.py` runs them under atheris; the tests run the same functions on a bounded number of inputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from tests.recipe.parsers.answers import CONTROL, parser, read, vocabulary
from tests.recipe.parsers.json_texts import is_json, scan

from forebay.recipe.parsers import Event, Problem, ToolCallArguments, ToolCallEnd, ToolCallStart
from forebay.recipe.parsers.json_object import ObjectReader
from forebay.recipe.parsers.json_scanner import MAX_DEPTH

_FORMATS: Final = sorted(CONTROL)
_MAX_PIECE: Final = 7
_FIRST_CONTROL: Final = 0xF5


class BrokenPromiseError(AssertionError):
    """A target found input that it should not have."""


def answers(data: bytes) -> None:
    """Any ids are read without an error, the same however they are cut; a call that ended has a JSON object.

    The first byte chooses format and cuts; a byte is a plain token, and bytes from 0xF5 on, which are in no UTF-8,
    stand for control tokens, spelled or real.
    """
    if not data:
        return
    name = _FORMATS[data[0] % len(_FORMATS)]
    ids = _ids(name, data[1:])
    whole = read(parser(name), ids)
    _expect(read(parser(name), ids, range(len(ids))) == whole, "token by token it reads otherwise")
    size = 1 + data[0] // len(_FORMATS) % _MAX_PIECE
    _expect(read(parser(name), ids, range(0, len(ids), size)) == whole, "in pieces it reads otherwise")
    _check_calls(whole[0])


def _ids(name: str, data: bytes) -> list[int]:
    known, plain = vocabulary(name), _plain_bytes(name)
    tokens = sorted(known.control.values())
    ids: list[int] = []
    for byte in data:
        if byte < _FIRST_CONTROL:
            ids.append(plain[byte])
            continue
        token = tokens[byte % len(tokens)]
        ids += [token] if byte % 2 else known.plain_ids(known.token_bytes(token).decode())
    return ids


@cache
def _plain_bytes(name: str) -> dict[int, int]:
    """The plain token of each byte."""
    known = vocabulary(name)
    return {known.token_bytes(token)[0]: token for token in range(known.size) if not known.is_control(token)}


def _check_calls(events: Sequence[Event]) -> None:
    spelled: dict[int, str] = {}
    ended: set[int] = set()
    for event in events:
        match event:
            case ToolCallStart(index):
                _expect(index == len(spelled), "calls are not numbered in order")
                spelled[index] = ""
            case ToolCallArguments(index, fragment):
                _expect(index in spelled and index not in ended, "arguments of no open call")
                spelled[index] += fragment
            case ToolCallEnd(index):
                ended.add(index)
                _expect(isinstance(json.loads(spelled[index]), dict), "a call's arguments are no object")
    broken = {event.index for event in events if isinstance(event, Problem) and event.index is not None}
    _expect(set(spelled) <= ended | broken, "a call neither ended nor is reported")


def json_scanner(data: bytes) -> None:
    """The scanner accepts what the standard library accepts, the same in any pieces, and reads an object's keys."""
    if not data:
        return
    text = data[1:].decode("utf-8", "replace")
    if sum(map(text.count, "[{")) > MAX_DEPTH:
        return
    size = 1 + data[0] % _MAX_PIECE
    whole, pieces = _scanned(text, len(text) or 1), _scanned(text, size)
    _expect(whole == pieces, "in pieces it scans otherwise")
    taken, done = whole
    _expect((done and not text[taken:].strip(" \t\r\n")) == is_json(text), "it disagrees with the standard library")
    if done and text.lstrip(" \t\r\n").startswith("{"):
        _check_object(text[:taken], size)


def _scanned(text: str, size: int) -> tuple[int, bool]:
    """How many characters it took, and whether they are a whole value."""
    scanner, taken = scan(text, size)
    if not scanner.failed:
        scanner.end()
    return taken, scanner.done


def _check_object(text: str, size: int) -> None:
    spelled: list[list[str]] = []

    def take(key: str, piece: str, done: bool) -> None:
        if not spelled or spelled[-1][2]:
            spelled.append([key, "", ""])
        spelled[-1][1] += piece
        spelled[-1][2] = "done" if done else ""

    reader = ObjectReader(take)
    for at in range(0, len(text), size):
        reader.feed(text[at : at + size])
    expected = json.loads(text, object_pairs_hook=_Pairs)
    _expect(
        [(key, json.loads(value, object_pairs_hook=_Pairs)) for key, value, _ in spelled] == list(expected), "members"
    )


class _Pairs(list[tuple[str, object]]):
    """An object's members, repeated keys too."""


def _expect(kept: bool, promise: str) -> None:
    if not kept:
        raise BrokenPromiseError(promise)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {"answers": answers, "json": json_scanner}
"""The targets by name."""
