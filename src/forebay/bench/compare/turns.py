"""What many turns come to: medians and ranges, ratios, goals. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forebay.bench.compare.rows import BEST, OURS, OWN, Row


@dataclass(slots=True)
class Turn:
    """What one side measured in one turn."""

    values: dict[str, float] = field(default_factory=dict)
    """By row, in the row's unit."""
    failures: dict[str, str] = field(default_factory=dict)
    """By row: why there is no value."""
    loads: dict[int, dict[str, float]] = field(default_factory=dict)
    """By number of clients: the figures of the load."""
    extras: dict[str, float] = field(default_factory=dict)
    """Measured beside the rows: the machine's limits, bytes of the weights."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By row: what measuring it took, warming up and waiting included; rows of one load all have that load's."""

    def fail(self, rows: Sequence[Row], error: Exception) -> None:
        """What is not yet measured of the rows failed with this."""
        for row in rows:
            if row.name not in self.values:
                self.failures.setdefault(row.name, str(error))


@dataclass(frozen=True, slots=True)
class Span:
    """One side's figure of a row over its turns."""

    median: float
    low: float
    high: float
    turns: int


def spans(turns: Sequence[Turn]) -> dict[str, Span]:
    """By row, of the rows that no turn failed in: median and range over the turns that measured it."""
    names = {name for turn in turns for name in turn.values} - set(failures(turns))
    found = {}
    for name in names:
        values = [turn.values[name] for turn in turns if name in turn.values]
        found[name] = Span(statistics.median(values), min(values), max(values), len(values))
    return found


def median_loads(turns: Sequence[Turn]) -> dict[int, dict[str, float]]:
    """Medians of the loads' figures, and the number of turns they come from, by number of clients."""
    found: dict[int, dict[str, float]] = {}
    for clients in sorted({clients for turn in turns for clients in turn.loads}):
        loads = [turn.loads[clients] for turn in turns if clients in turn.loads]
        found[clients] = {name: statistics.median(load[name] for load in loads) for name in loads[0]}
        found[clients]["turns"] = len(loads)
    return found


def failures(turns: Sequence[Turn]) -> dict[str, str]:
    """By row, the first reason that a turn gave for not measuring it."""
    found: dict[str, str] = {}
    for turn in turns:
        for name, reason in turn.failures.items():
            found.setdefault(name, reason)
    return found


def times_as_good(row: Row, value: float, other: float) -> float:
    """How many times as good `value` is as `other`: above 1 is ahead, whichever direction is better in this row."""
    numerator, denominator = (value, other) if row.higher_is_better else (other, value)
    return numerator / denominator if denominator > 0 else float("inf")


def best_peer(row: Row, values: Mapping[str, float]) -> str | None:
    """The name of the side that isn't ours that did best; None when there is none. `values` are by side."""
    peers = [name for name in values if name not in OWN]
    if not peers:
        return None
    return (max if row.higher_is_better else min)(peers, key=lambda name: values[name])


def goal_met(row: Row, values: Mapping[str, float], share: float | None, own: str = OURS) -> bool | None:
    """Whether all that the goal names holds for our side `own`; None when there is no goal, or what it compares with
    was not measured.

    `values` are by side; `share` is how much it reached of what the rate of floating-point products allows.
    """
    goal, ours = row.goal, values.get(own)
    if ours is None:
        return None
    checks: list[bool | None] = [_times_met(row, ours, values, name, factor) for name, factor in goal.times.items()]
    if goal.below is not None:
        checks.append(ours < goal.below)
    if goal.of_float_limit is not None:
        checks.append(None if share is None else share >= goal.of_float_limit)
    if False in checks:
        return False
    return None if not checks or None in checks else True


def _times_met(row: Row, ours: float, values: Mapping[str, float], name: str, factor: float) -> bool | None:
    peer = best_peer(row, values) if name == BEST else name
    return None if peer is None or peer not in values else times_as_good(row, ours, values[peer]) >= factor
