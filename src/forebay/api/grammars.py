"""Grammars from what a request holds, in all protocols. They are compiled later, in `asking`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from forebay.core.errors import InvalidRequestError
from forebay.core.grammar import GrammarSpec

MAX_DEPTH: Final = 64
"""How deep a schema may be nested."""


def schema_grammar(schema: dict[str, Any] | str, param: str) -> GrammarSpec:
    """A schema, or its JSON text. Raises InvalidRequestError, for `param`, for what is none, or nested too deep."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise InvalidRequestError(f"The schema is not JSON: {error}", param) from error
    if not isinstance(schema, dict):
        raise InvalidRequestError("The schema is not a JSON object.", param)
    if _too_deep(schema):
        raise InvalidRequestError(f"The schema is nested more than {MAX_DEPTH} levels deep.", param)
    return GrammarSpec("json_schema", json.dumps(schema))


def choice_grammar(texts: Sequence[str]) -> GrammarSpec:
    """An answer that is one of these texts."""
    return GrammarSpec("lark", "start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts))


def check_text(text: str, param: str) -> None:
    """Raise InvalidRequestError for text that is not Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"'{param}' holds a lone surrogate, which is not a character.", param) from error


def _too_deep(schema: dict[str, Any]) -> bool:
    level: list[Any] = [schema]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _inner(value)]
        if not level:
            return False
    return True


def _inner(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict | list)]
