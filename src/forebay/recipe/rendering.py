"""A prompt for people to look at: each token with its text and who wrote it; the same for string rendering.

Nothing that is made here is ever served.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from forebay.core.prompt import Origin, Prompt
from forebay.recipe.by_string import StringRendering
from forebay.recipe.pieces import Piece
from forebay.recipe.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class ShownToken:
    """One token."""

    id: int
    text: str
    """The characters that are complete with it; a control token's spelling."""
    origin: Origin
    control: bool
    forged: bool = False
    """A control token that came from someone's text."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """A prompt, token by token."""

    tokens: list[ShownToken]

    @property
    def ids(self) -> list[int]:
        """What the model reads."""
        return [token.id for token in self.tokens]

    @property
    def forged(self) -> int:
        """How many control tokens came from someone's text."""
        return sum(token.forged for token in self.tokens)

    def as_json(self) -> dict[str, Any]:
        """Ids; spans of one origin; and within them pieces, in which control tokens stand alone."""
        return {
            "count": len(self.tokens),
            "ids": self.ids,
            "spans": [_run(run, at) for at, run in _runs(self.tokens, split_control=False)],
            "pieces": [
                {**_run(run, at), "control": run[0].control, "forged": run[0].forged}
                for at, run in _runs(self.tokens, split_control=True)
            ],
        }


def _runs(tokens: Sequence[ShownToken], *, split_control: bool) -> Iterator[tuple[int, list[ShownToken]]]:
    """Neighbours of one origin, with the place of the first; a control token is a run of its own when asked."""
    keyed = enumerate(tokens)
    for _, group in groupby(
        keyed, lambda item: (item[1].origin, item[0] if split_control and item[1].control else None)
    ):
        run = list(group)
        yield run[0][0], [token for _, token in run]


def _run(run: list[ShownToken], start: int) -> dict[str, Any]:
    text = "".join(token.text for token in run)
    return {"origin": run[0].origin.value, "start": start, "end": start + len(run), "text": text}


def rendering_of(vocabulary: Vocabulary, prompt: Prompt) -> Rendering:
    """A prompt as it is served."""
    origins = (span.origin for span in prompt.spans for _ in range(span.start, span.end))
    marked = [
        (token, origin, vocabulary.is_control(token), False) for token, origin in zip(prompt.ids, origins, strict=True)
    ]
    return Rendering(list(_with_text(vocabulary, marked)))


def rendering_by_string(vocabulary: Vocabulary, pieces: Iterable[Piece]) -> Rendering:
    """The same conversation rendered as one string and tokenised with control tokens recognised."""
    by_string = StringRendering(vocabulary)
    tokens = by_string.tokens(by_string.spell(pieces))
    marked = [(token.id, token.origin, token.control, token.forged) for token in tokens]
    return Rendering(list(_with_text(vocabulary, marked)))


def _with_text(vocabulary: Vocabulary, marked: Iterable[tuple[int, Origin, bool, bool]]) -> Iterator[ShownToken]:
    """Half a character shows with the token that completes it, as U+FFFD when a control token cuts it off."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token, origin, control, forged in marked:
        raw = vocabulary.token_bytes(token)
        yield ShownToken(token, decoder.decode(raw, final=control), origin, control, forged)
        if control:
            decoder.reset()
