"""String formatting that keeps marks: the small part of `%` and `str.format` that templates need, the rest refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from forebay.recipe.jinja.marked import Marked, concat

_PERCENT: Final = re.compile(r"%(?:\((?P<name>\w+)\))?(?P<kind>[sd%])|%(?P<other>.?)")
_BRACES: Final = re.compile(r"\{\{|\}\}|\{(?P<name>\w*)\}|(?P<other>[{}])")


def percent(pattern: str, values: Any) -> Marked:
    """`pattern % values` with %s, %d, %(name)s and %%. Raises ValueError for any other conversion."""
    named = values if isinstance(values, Mapping) else {}
    listed = values if isinstance(values, tuple) else (values,)

    def fill(match: re.Match[str], places: Iterator[int]) -> str:
        if match["kind"] == "%":
            return "%"
        value = listed[next(places)] if match["name"] is None else named[match["name"]]
        return _text(int(value) if match["kind"] == "d" else value)

    return _filled(pattern, _PERCENT, fill)


def braces(pattern: str, *args: Any, **kwargs: Any) -> Marked:
    """`pattern.format(…)` with {}, {0} and {name}. Raises ValueError for any other field."""

    def fill(match: re.Match[str], places: Iterator[int]) -> str:
        name = match["name"]
        if name is None:
            return match[0][0]
        if name == "" or name.isdigit():
            return _text(args[int(name) if name else next(places)])
        return _text(kwargs[name])

    return _filled(pattern, _BRACES, fill)


def _filled(pattern: str, fields: re.Pattern[str], fill: Callable[[re.Match[str], Iterator[int]], str]) -> Marked:
    marked = pattern if isinstance(pattern, Marked) else Marked(pattern)
    plain = str.__str__(marked)
    parts: list[str] = []
    places = iter(range(len(plain)))
    at = 0
    for match in fields.finditer(plain):
        if match["other"] is not None:
            raise ValueError(f"{match[0]!r} is not supported in a chat template's format")
        parts += [marked[at : match.start()], fill(match, places)]
        at = match.end()
    parts.append(marked[at:])
    return concat(parts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)
