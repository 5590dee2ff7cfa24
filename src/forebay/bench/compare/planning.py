"""What is measured when: the order of turns, which rows a side has time for, and how long all of it will take. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from forebay.bench.compare.rows import Load, Row
from forebay.bench.compare.turns import Turn, failures

Step = tuple[int, str]
"""The number of a turn, from 0, and the side that takes it."""


def order_of_turns(sides: Sequence[str], turns: int) -> Iterator[Step]:
    """Every side once a round; each round begins with another side, so that none always has the warmer machine."""
    for number in range(turns):
        first = number % len(sides)
        for side in (*sides[first:], *sides[:first]):
            yield number, side


def rows_to_measure(rows: Sequence[Row], taken: Sequence[Turn], budget_s: float | None) -> list[Row]:
    """The rows of a side's next turn, after the turns `taken`.

    A row that failed is not tried again. Every row is measured once; again only while what it has taken so far, and as
    much as the last time on top of it, stays within `budget_s` seconds.
    """
    failed = failures(taken)
    return [row for row in rows if row.name not in failed and _affordable(row, taken, budget_s)]


def _affordable(row: Row, taken: Sequence[Turn], budget_s: float | None) -> bool:
    spent = [turn.seconds[row.name] for turn in taken if row.name in turn.seconds]
    return budget_s is None or not spent or sum(spent) + spent[-1] <= budget_s


def clients_of_turn(load: Load, number: int) -> tuple[int, ...]:
    """The numbers of clients that a server is asked by in a turn: all in the first, then those of the table alone."""
    return load.clients if number == 0 else (max(load.clients),)


def seconds_left(steps: Sequence[Step], taken: Mapping[str, Sequence[float]]) -> float | None:
    """How long the turns in `steps` will take, each as long as its side's last one; None when a side has taken none.

    `taken` are the seconds of the turns so far, by side.
    """
    if any(not taken.get(side) for _, side in steps):
        return None
    return sum(taken[side][-1] for _, side in steps)
