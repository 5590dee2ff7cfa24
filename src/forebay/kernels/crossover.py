"""How many rows are few for a quantised matrix: up to there its weights are widened in registers, beyond in the cache.

Both ways give the same bits, so this is a matter of speed only. It is measured once for each kind of matrix on each
machine and kept in the cache folder. Policy and book-keeping; the products that are timed are the backend's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from forebay.kernels.kept import keep, read_kept

USUAL_CROSSOVER = 6
"""Where nothing is measured: the rows of one register tile with AVX2."""
_TRIED = range(4, 14)
"""Numbers of rows that are timed: with fewer, registers win everywhere; with more, the cache does."""
_TRIES = 4
_AGREE = 2
"""Two measurements that differ by more say that the machine was busy: neither is believed."""
_KIND = "crossover"

Timer = Callable[[int, int], float]
"""(rows, how many are few) → seconds that a product took."""


class MatrixKind(NamedTuple):
    """Matrices that behave alike."""

    format: str
    outputs: int
    inputs: int

    @property
    def key(self) -> str:
        return f"{self.format} {self.outputs}x{self.inputs}"


def known_crossovers(timers: Mapping[MatrixKind, Timer], kernels: str, threads: int) -> dict[MatrixKind, int]:
    """The crossover of each kind: kept for this processor, kernels and number of threads, or measured and then kept.
    Where it can't be measured, on a busy machine, the usual one serves, and the next start tries again.
    """
    kept = read_kept(_KIND, kernels, threads)
    known = {kind: _valid(kept.get(kind.key)) for kind in timers}
    new = {kind: measure(timers[kind]) for kind, few in known.items() if few is None}
    measured = {kind.key: few for kind, few in new.items() if few is not None}
    if measured:
        keep(_KIND, kernels, threads, kept | measured)
    return {kind: few or USUAL_CROSSOVER for kind, few in (known | new).items()}


def measure(timer: Timer) -> int | None:
    """Time both ways for each number of rows, twice over; the lower result, or None if the two don't agree."""
    first, second = _once(timer), _once(timer)
    return min(first, second) if abs(first - second) <= _AGREE else None


def _once(timer: Timer) -> int:
    """Both ways take turns; the best of a few tries counts, for other work on the machine only makes one slower."""
    times = {}
    for rows in _TRIED:
        pairs = [(timer(rows, rows), timer(rows, 0)) for _ in range(_TRIES)]
        times[rows] = (min(few for few, _ in pairs), min(many for _, many in pairs))
    return crossover((rows, *seconds) for rows, seconds in times.items())


def crossover(times: Iterable[tuple[int, float, float]]) -> int:
    """The last number of rows that are few, from (rows, seconds in registers, seconds in the cache) in order of rows.

    One threshold for all: the one that loses least over all numbers of rows, relative to the faster way of each. A
    single bad measurement therefore moves it little.
    """
    rows = list(times)
    losses = [(few / min(few, many), many / min(few, many)) for _, few, many in rows]
    total = {
        (rows[0][0] - 1 if cut == 0 else rows[cut - 1][0]): sum(few for few, _ in losses[:cut])
        + sum(many for _, many in losses[cut:])
        for cut in range(len(rows) + 1)
    }
    return min(total, key=total.__getitem__)


def _valid(kept: object) -> int | None:
    return kept if isinstance(kept, int) and _TRIED.start - 1 <= kept < _TRIED.stop else None
