"""Whether any answer is held to a grammar. What reads the vocabulary and follows grammars is `grammars.py`.

Nothing of that is imported before the first request with a grammar, which keeps a third of a second out of every start;
draws without a grammar are passed through untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from forebay.core.grammar import GrammarSpec
from forebay.engine.sampler import Draw
from forebay.models import ModelSource

if TYPE_CHECKING:
    from forebay.engine.grammars import Grammars


class Constraints:
    """Not thread-safe: the engine's thread calls it."""

    def __init__(self, load: Callable[[], Grammars]) -> None:
        """`load` reads the model's vocabulary; it may raise ForebayError, and is called again then."""
        self._load = load
        self._grammars: Grammars | None = None

    def admit(self, spec: GrammarSpec) -> None:
        """Make sure that a request's grammar can be followed.

        Raises InvalidRequestError for one that can't be compiled, UnsupportedModelError where the model has no
        tokenizer that can be read.
        """
        if self._grammars is None:
            self._grammars = self._load()
        self._grammars.check(spec)

    def constrain(self, draws: Sequence[Draw]) -> tuple[list[Draw], dict[int, str]]:
        """The draws, those of grammars with the tokens that may come next; and, by place in `draws`, why an answer
        can't go on. Such a draw is left free: its token must not be used."""
        return (list(draws), {}) if self._grammars is None else self._grammars.constrain(draws)

    def forget(self, request_id: str, choice: int | None = None) -> None:
        """Drop the state of a choice, or of all of a request's."""
        if self._grammars is not None:
            self._grammars.forget(request_id, choice)


def load_grammars(source: ModelSource, vocab_size: int) -> Grammars:
    """What follows the grammars of a model's answers. Raises UnsupportedModelError when its tokenizer can't be read."""
    from forebay.engine.grammars import Grammars  # noqa: PLC0415
    from forebay.recipe.grammar import load_grammar_tokens  # noqa: PLC0415

    return Grammars(load_grammar_tokens(source.path, source.kind, vocab_size))
