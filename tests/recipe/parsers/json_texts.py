"""What the tests of the JSON scanner and its fuzz target share: a scan in pieces, and the standard library's word."""

from __future__ import annotations

import json

from forebay.recipe.parsers.json_scanner import JsonScanner


def scan(text: str, size: int) -> tuple[JsonScanner, int]:
    """The scanner behind the text in pieces of `size`, and how much it took."""
    scanner, taken = JsonScanner(), 0
    for at in range(0, len(text), size):
        piece = text[at : at + size]
        took = scanner.feed(piece)
        taken += took
        if took < len(piece):
            break
    return scanner, taken


def is_json(text: str) -> bool:
    """Whether the standard library reads it, without its extensions."""
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(name)
