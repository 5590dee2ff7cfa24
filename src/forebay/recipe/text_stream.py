"""An answer's text as it may be shown: detokenised, cut at the first stop string, never showing a part of one.

Tokens are taken one by one, so what is emitted in total and where it stops don't depend on how many tokens a step
brought.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.recipe.detokenizer import Detokenizer
from forebay.recipe.stop_strings import StopStrings


@dataclass(frozen=True, slots=True)
class TextDelta:
    """What one push added."""

    text: str
    stopped: str | None = None
    """The stop string that ended the answer; it and all behind it are never emitted."""
    tokens: int = 0
    """How many of the pushed tokens belong to the answer; fewer than pushed when a stop string ended it."""


class TextStream:
    """Emits text until a stop string is complete.

    A stop string that ends before the answer has `min_tokens` tokens is ordinary text.
    """

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str] = (), min_tokens: int = 0) -> None:
        self._detokenizer = detokenizer
        self._stops = StopStrings(stop)
        self._min_tokens = min_tokens
        self._tokens = 0

    def push(self, token_ids: Sequence[int]) -> TextDelta:
        """Take new tokens. After a stop string everything is ignored."""
        if not self._stops.any:
            self._tokens += len(token_ids)
            return TextDelta(self._detokenizer.push(token_ids), None, len(token_ids))
        shown: list[str] = []
        taken = 0
        for token in token_ids:
            if self._stops.found is not None:
                break
            taken += 1
            self._tokens += 1
            shown.append(self._take(self._detokenizer.push((token,))))
        return TextDelta("".join(shown), self._stops.found, taken)

    def finish(self) -> TextDelta:
        """The answer ended otherwise: return what was held back."""
        if self._stops.found is not None:
            return TextDelta("", self._stops.found)
        shown = self._take(self._detokenizer.finish())
        if self._stops.found is None:
            shown += self._stops.release()
        return TextDelta(shown, self._stops.found)

    def _take(self, text: str) -> str:
        return self._stops.push(text, armed=self._tokens >= self._min_tokens)
