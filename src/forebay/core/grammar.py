"""What an answer has to look like, as text that any process can compile. It compiles nothing."""

from __future__ import annotations

from typing import Literal

import msgspec

GrammarKind = Literal["json_object", "json_schema", "regex", "lark"]


class GrammarSpec(msgspec.Struct, frozen=True):
    """A grammar of answers. Two that are equal mean the same."""

    kind: GrammarKind
    """`json_object`: any JSON object. The others say what is in `text`."""
    text: str = ""
    """A JSON schema; a regular expression that the whole answer matches; or a grammar in llguidance's Lark."""
    after: int | None = None
    """The token that ends reasoning: everything up to it is free, and the grammar holds from there on."""
    begin: int | None = None
    """The token that has to begin such reasoning, which then may be left out; None: the prompt has begun it."""
    budget: int | None = None
    """The most tokens of reasoning, at least 1; then only its end can come. With `after`, or in a grammar that says
    itself where reasoning stands."""
