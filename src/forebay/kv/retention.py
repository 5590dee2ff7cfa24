"""Retention classes: how long a stored page may stay unread. Not who goes first within the bounds: see `value.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping

NONE = "none"
"""The class of pages that are never written to disk."""

DAY_S = 86400.0
DEFAULT_CLASSES: Mapping[str, float] = {"chat": 7 * DAY_S, "agent": 3 * DAY_S, NONE: 0.0}

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY_S}
_CLASS = re.compile(r"([a-z][a-z0-9_-]{0,15})=(\d+(?:\.\d+)?)([smhd])")


class RetentionPolicy:
    """The classes by name, each with the seconds that a page stays after its last use. A class of 0 s is not stored."""

    def __init__(self, extra: Mapping[str, float] | None = None) -> None:
        """`extra` adds classes to the default ones or changes their lengths. Raises ValueError for negative ones."""
        self.classes = {**DEFAULT_CLASSES, **(extra or {})}
        wrong = [name for name, seconds in self.classes.items() if seconds < 0]
        if wrong:
            raise ValueError(f"retention of {', '.join(wrong)} is negative")
        self._shortest = min((s for s in self.classes.values() if s > 0), default=0.0)

    def seconds(self, name: str) -> float:
        """How long a page of this class stays unread. An unknown name counts as the shortest stored class."""
        return self.classes.get(name, self._shortest)

    def stored(self, name: str) -> bool:
        """Whether pages of this class go to disk."""
        return self.seconds(name) > 0

    def expired(self, name: str, last_use: float, now: float) -> bool:
        """Whether a page last used at `last_use` is past its time at `now` (same clock, in seconds)."""
        return now - last_use > self.seconds(name)

    def longer(self, first: str, second: str) -> str:
        """The class that keeps longer: what a page gets when requests of both classes use it."""
        return second if self.seconds(second) > self.seconds(first) else first

    def nearest(self, seconds: float) -> str:
        """The stored class whose length is nearest to `seconds`, the shorter one of two equally near."""
        stored = [(abs(length - seconds), length, name) for name, length in self.classes.items() if length > 0]
        return min(stored)[2] if stored else NONE


def parse_class(text: str) -> tuple[str, float]:
    """A class written as NAME=DURATION, such as "build=12h" (s, m, h or d), as its name and seconds.

    Raises ValueError saying what is understood.
    """
    match = _CLASS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no retention class; write NAME=DURATION, such as build=12h or archive=30d.")
    name, number, unit = match.groups()
    return name, float(number) * _UNITS[unit]
