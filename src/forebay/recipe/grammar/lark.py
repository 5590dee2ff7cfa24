"""Pieces of grammars in llguidance's Lark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from forebay.recipe.grammar.source import JSON_OPTIONS
from forebay.recipe.vocabulary import Vocabulary


def harmony_analysis(vocabulary: Vocabulary) -> str:
    """Harmony's message of reasoning, and the head of the next one; needs the rule `THOUGHT` of `source`."""
    start, channel, message, end = (
        marker(vocabulary, f"<|{name}|>") for name in ("start", "channel", "message", "end")
    )
    return f'{channel} "analysis" {message} thought {end} {start} "assistant"'


def literal(text: str) -> str:
    """Exactly this text, written with plain tokens."""
    return json.dumps(text, ensure_ascii=False)


def marker(vocabulary: Vocabulary, spelling: str) -> str:
    """A marker: its control token, or where the vocabulary has none its spelling."""
    token = vocabulary.control.get(spelling)
    return literal(spelling) if token is None else f"<[{token}]>"


def json_of(schema: Mapping[str, Any]) -> str:
    """JSON that follows a schema, which is the root of its own references."""
    return "%json " + json.dumps({"x-guidance": JSON_OPTIONS, **schema}, ensure_ascii=False)
