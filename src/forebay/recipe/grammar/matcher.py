"""The state of one constrained answer, and the masks of a step's answers. The answer's ids are the only truth: a state
follows them, however they came about."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from llguidance import LLMatcher

from forebay.core.errors import ForebayError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class DeadEndError(ForebayError):
    """The answer so far can't be continued within its grammar; the message says why."""


class Matcher:
    """One answer's place in its grammar."""

    def __init__(self, template: LLMatcher, ends: frozenset[int], stop_ids: Collection[int] = ()) -> None:
        """`template` is not changed. `ends`: the model's own ends of an answer; `stop_ids`: those of its request."""
        self._template = template
        self._matcher = template.deep_copy()
        self._ends = ends
        self._stop_ids = frozenset(stop_ids)
        self._taken: list[int] = []

    @property
    def library(self) -> LLMatcher:
        """The library's object, for masks."""
        return self._matcher

    @property
    def accepting(self) -> bool:
        """Whether the answer may end here."""
        return self._matcher.is_accepting()

    @property
    def complete(self) -> bool:
        """Whether the answer can only end here."""
        return self._matcher.is_stopped()

    def follow(self, output_ids: Sequence[int]) -> None:
        """Take up the answer's ids as they are now: new ones are consumed; after anything else it starts anew.

        Stop tokens that are no part of the grammar are not consumed. Raises DeadEndError for ids that the grammar
        forbids, and when a bound on its complexity is reached.
        """
        known = len(self._taken)
        if len(output_ids) < known or list(output_ids[:known]) != self._taken:
            self._restart()
            known = 0
        fresh = list(output_ids[known:])
        self._taken += fresh
        rest = [token for token in fresh if token not in self._ends]
        while rest:
            rest = rest[self._matcher.try_consume_tokens(rest) :]
            if rest and rest[0] not in self._stop_ids:
                self._restart()
                raise DeadEndError("The answer is not what its grammar allows.")
            rest = rest[1:]

    def _restart(self) -> None:
        self._matcher = self._template.deep_copy()
        self._taken = []


def allowed_tokens(matchers: Sequence[Matcher], vocab_size: int) -> npt.NDArray[np.bool_]:
    """Which tokens may come next: bool [answers, at least `vocab_size`], the width of the matchers' tokenizer.

    Rows of answers that can't be continued are all false. One after the other: the library's own threads gain nothing
    below dozens of answers, and compete with those of the kernels.
    """
    import numpy as np  # noqa: PLC0415  (the API's process, which computes no masks, does without)
    from llguidance.numpy import fill_next_token_bitmask  # noqa: PLC0415  (as above)

    bits: npt.NDArray[np.int32] = np.zeros((len(matchers), -(-vocab_size // 32)), np.int32)
    for at, matcher in enumerate(matchers):
        fill_next_token_bitmask(matcher.library, bits, at)
        if matcher.library.is_error():
            bits[at] = 0
    return np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little").view(np.bool_)


_BRIEF: Final = 300


def _brief(error: str) -> str:
    """The library's message without the dump of its state."""
    return error.partition("\n<state>")[0].strip()[:_BRIEF]


def error_of(matcher: LLMatcher) -> str:
    """The library's message, short enough for a client; empty when all is well."""
    return _brief(matcher.get_error()) if matcher.is_error() else ""
