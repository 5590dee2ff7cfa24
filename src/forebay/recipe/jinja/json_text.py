"""Jinja's `tojson` as Hugging Face templates expect it, written so that every character keeps its mark.

`json.dumps` joins strings by itself, which would make all of them of unknown origin.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from forebay.recipe.jinja.given import Number, Written
from forebay.recipe.jinja.marked import TEMPLATE, UNKNOWN, Marked, concat, runs


def plain_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """The text that `json.dumps` makes, but the arguments of calls as they were sent."""
    return "".join(_Writer(ensure_ascii, indent, separators, sort_keys).parts(value, 0))


def marked_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> Marked:
    """The same with marks. Where all strings are one origin's, the punctuation and the numbers between them are too;
    where they are not, these are of unknown origin."""
    text = concat(_Writer(ensure_ascii, indent, separators, sort_keys).parts(value, 0))
    owners = set(text.marks) - {UNKNOWN, TEMPLATE}
    return text if len(owners) != 1 else Marked(text, text.marks.replace(bytes((UNKNOWN,)), bytes(owners)))


class _Writer:
    """The options of one call."""

    def __init__(self, ascii_only: bool, indent: int | None, separators: Any, sort: bool) -> None:
        self._ascii = ascii_only
        self._indent = indent
        self._usual = indent is None and not separators and not sort and not ascii_only
        self._comma: str = separators[0] if separators else ", " if indent is None else ","
        self._colon: str = separators[1] if separators else ": "
        self._sort = sort

    def parts(self, value: Any, depth: int) -> Iterator[str]:
        if isinstance(value, str):
            yield from self._string(value)
        elif isinstance(value, Number) or (isinstance(value, Written) and self._usual):
            yield value.text
        elif isinstance(value, dict):
            items = sorted(value.items()) if self._sort else value.items()
            yield from self._container("{}", [(_key(key), inner) for key, inner in items], depth)
        elif isinstance(value, list | tuple):
            yield from self._container("[]", [(None, inner) for inner in value], depth)
        else:
            yield json.dumps(value, ensure_ascii=self._ascii)

    def _container(self, ends: str, items: list[tuple[str | None, Any]], depth: int) -> Iterator[str]:
        yield ends[0]
        for place, (key, value) in enumerate(items):
            yield (self._comma if place else "") + self._line(depth + 1)
            if key is not None:
                yield from self._string(key)
                yield self._colon
            yield from self.parts(value, depth + 1)
        yield (self._line(depth) if items else "") + ends[1]

    def _line(self, depth: int) -> str:
        return "" if self._indent is None else "\n" + " " * self._indent * depth

    def _string(self, text: str) -> Iterator[str]:
        yield '"'
        for run, mark in runs(text):
            yield Marked.of(json.dumps(run, ensure_ascii=self._ascii)[1:-1], mark)
        yield '"'


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)
