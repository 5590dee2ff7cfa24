"""An answer's text as it may be shown: detokenised, cut at the first stop string, never showing a part of one.

Tokens are taken one by one, so what is emitted in total and where it stops don't depend on how many tokens a step
brought.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.recipe.detokenizer import Detokenizer


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

    The stop string that is complete first wins; of several that end at the same character, the longest. One that ends
    before the answer has `min_tokens` tokens is ordinary text. Text that may still become a stop string is held back.
    """

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str] = (), min_tokens: int = 0) -> None:
        self._detokenizer = detokenizer
        self._stop = sorted({string for string in stop if string}, key=len, reverse=True)
        self._min_tokens = min_tokens
        self._tokens = 0
        self._held = ""
        self._stopped: str | None = None

    def push(self, token_ids: Sequence[int]) -> TextDelta:
        """Take new tokens. After a stop string everything is ignored."""
        if not self._stop:
            self._tokens += len(token_ids)
            return TextDelta(self._detokenizer.push(token_ids), None, len(token_ids))
        shown: list[str] = []
        taken = 0
        for token in token_ids:
            if self._stopped is not None:
                break
            taken += 1
            self._tokens += 1
            shown.append(self._take(self._detokenizer.push((token,))))
        return TextDelta("".join(shown), self._stopped, taken)

    def finish(self) -> TextDelta:
        """The answer ended otherwise: return what was held back."""
        if self._stopped is not None:
            return TextDelta("", self._stopped)
        shown = self._take(self._detokenizer.finish())
        if self._stopped is None:
            shown += self._held
            self._held = ""
        return TextDelta(shown, self._stopped)

    def _take(self, text: str) -> str:
        """Add decoded text; return what can be shown now."""
        if not text:
            return ""
        known = len(self._held)
        self._held += text
        found = self._first_stop(known) if self._tokens >= self._min_tokens else None
        if found is not None:
            start, self._stopped = found
            shown, self._held = self._held[:start], ""
            return shown
        keep = self._open_suffix()
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def _first_stop(self, known: int) -> tuple[int, str] | None:
        """The stop string whose end comes first, behind the `known` characters that were searched before."""
        best: tuple[int, int, str] | None = None
        for string in self._stop:
            start = self._held.find(string, max(0, known - len(string) + 1))
            if start >= 0 and (best is None or start + len(string) < best[0]):
                best = (start + len(string), start, string)
        return None if best is None else (best[1], best[2])

    def _open_suffix(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        return max((self._overlap(string) for string in self._stop), default=0)

    def _overlap(self, string: str) -> int:
        for length in range(min(len(string) - 1, len(self._held)), 0, -1):
            if self._held.endswith(string[:length]):
                return length
        return 0
