"""An assistant message's body: the ids that this server's model produced for it, where they are kept, else what the
template renders. Shared by all templates; it decides nothing about which parts of a history a template shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forebay.recipe.conversation import Message
from forebay.recipe.pieces import Kept, Piece


def kept_or(message: Message, rendered: Iterable[Piece], *, reasoning: bool) -> Iterator[Piece]:
    """The body between the turn's head and its end token.

    Args:
        message: an assistant's.
        rendered: what the template makes of it; an iterator is not run when ids are kept.
        reasoning: whether the template shows this message's reasoning. What the prompt opened before the model wrote
            (`<think>` in some templates) is not among the kept ids, so the template puts it before this.
    """
    if message.kept is None:
        yield from rendered
        return
    ids = message.kept.ids if reasoning else message.kept.ids[message.kept.body :]
    if ids:
        yield Kept(tuple(ids))
