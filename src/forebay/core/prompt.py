"""A prompt as the engine sees it: token ids, and for each span where it came from. Never a rendered string."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Origin(StrEnum):
    """Who wrote a span of the prompt."""

    TEMPLATE = "template"
    """Put in by the recipe, by id; of what a request says, none may hold control tokens."""
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    """An answer. Sent by a client it is text like any other; kept by the server it is the ids that the model produced,
    which may hold control tokens, because the model wrote them."""
    TOOL = "tool"


class Span(msgspec.Struct, frozen=True):
    """Token ids [start, end) of a prompt, all of one origin."""

    start: int
    end: int
    origin: Origin


class Prompt(msgspec.Struct, frozen=True):
    """Token ids with provenance; the spans are in order, do not overlap and cover all ids."""

    ids: list[int]
    spans: list[Span]

    def __len__(self) -> int:
        return len(self.ids)
