"""Finds an answer's place in a rendering, so that kept ids can stand there.

A template that is not known can't say where an answer begins and ends. It is found by the two strings that enclose one,
which the template spells itself: what it puts behind a question to ask for the answer, and what ends the answer. Where
these don't enclose each answer of a conversation, all of it stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forebay.recipe.conversation import Message
from forebay.recipe.jinja.marked import TEMPLATE, Marked
from forebay.recipe.pieces import Kept
from forebay.recipe.templates.answers import kept_or


@dataclass(frozen=True, slots=True)
class AnswerPlace:
    """What stands before and behind an answer."""

    head: str
    end: str


def split_kept(rendered: Marked, messages: Sequence[Message], place: AnswerPlace | None) -> Iterator[Marked | Kept]:
    """The rendering, with kept ids in the places of the answers that they belong to."""
    answers = [message for message in messages if message.role == "assistant"]
    heads = _own(rendered, place.head) if place is not None and any(each.kept for each in answers) else []
    at = 0
    if place is not None and len(heads) in (len(answers), len(answers) + 1):
        ends = _own(rendered, place.end)
        for message, head in zip(answers, heads, strict=False):
            start = head + len(place.head)
            end = next((end for end in ends if end >= start), None)
            if message.kept is None or end is None:
                continue
            shown = bool(message.reasoning) and message.reasoning.strip() in rendered[start:end]
            yield rendered[at:start]
            for piece in kept_or(message, (), reasoning=shown):
                if isinstance(piece, Kept):
                    yield piece
            at = end
    yield rendered[at:]


def _own(rendered: Marked, spelling: str) -> list[int]:
    """Where the template itself spells this."""
    own = bytes((TEMPLATE,)) * len(spelling)
    found = [match.start() for match in re.finditer(re.escape(spelling), rendered)]
    return [start for start in found if rendered.marks[start : start + len(spelling)] == own]
