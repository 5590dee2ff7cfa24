"""White space that a control token swallows: some tokenizers (Phi-3's) take it off the text beside the token.

A model was trained without it, though its template writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.vocabulary import Vocabulary


def without_swallowed(pieces: Iterable[Piece], vocabulary: Vocabulary) -> Iterable[Piece]:
    """The pieces as the model's tokenizer leaves them."""
    if not (vocabulary.swallows_before or vocabulary.swallows_behind):
        return pieces
    return _shown(pieces, vocabulary)


def _shown(pieces: Iterable[Piece], vocabulary: Vocabulary) -> Iterator[Piece]:
    run: list[Words | Text] = []
    swallowing = False
    for piece in pieces:
        if isinstance(piece, Words | Text):
            text = piece.text.lstrip() if swallowing else piece.text
            if text:
                run.append(replace(piece, text=text))
                swallowing = False
            continue
        if isinstance(piece, Control) and piece.id in vocabulary.swallows_before:
            run = _without_end(run)
        yield from run
        run = []
        yield piece
        swallowing = isinstance(piece, Control) and piece.id in vocabulary.swallows_behind
    yield from run


def _without_end(run: list[Words | Text]) -> list[Words | Text]:
    """A run without the white space at its end."""
    while run:
        text = run[-1].text.rstrip()
        if text:
            return [*run[:-1], replace(run[-1], text=text)]
        run = run[:-1]
    return run
