"""Stop strings in text that streams: the text is cut at the first one, and never a part of one is shown."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Finds the first stop string.

    The one that is complete first wins; of several that end at the same character, the longest. Text that may still
    become one is held back.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = sorted({string for string in strings if string}, key=len, reverse=True)
        self._held = ""
        self.found: str | None = None
        """The stop string that was found; it and all behind it are never shown."""

    @property
    def any(self) -> bool:
        """Whether there is a string to look for."""
        return bool(self._strings)

    def push(self, text: str, *, armed: bool = True) -> str:
        """Add text; return what can be shown now. Unless `armed`, a string that ends in this text is ordinary text."""
        if not text or self.found is not None:
            return ""
        known = len(self._held)
        self._held += text
        first = self._first(known) if armed else None
        if first is not None:
            start, self.found = first
            shown, self._held = self._held[:start], ""
            return shown
        keep = self._open_suffix()
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def release(self) -> str:
        """The text ends here: what was held back is no stop string."""
        shown, self._held = self._held, ""
        return shown

    def _first(self, known: int) -> tuple[int, str] | None:
        """The stop string whose end comes first, behind the `known` characters that were searched before."""
        best: tuple[int, int, str] | None = None
        for string in self._strings:
            start = self._held.find(string, max(0, known - len(string) + 1))
            if start >= 0 and (best is None or start + len(string) < best[0]):
                best = (start + len(string), start, string)
        return None if best is None else (best[1], best[2])

    def _open_suffix(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        return max((self._overlap(string) for string in self._strings), default=0)

    def _overlap(self, string: str) -> int:
        for length in range(min(len(string) - 1, len(self._held)), 0, -1):
            if self._held.endswith(string[:length]):
                return length
        return 0
