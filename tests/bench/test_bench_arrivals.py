"""The schedule of a load test: its mean rate, its shape, and that the seed alone decides it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forebay.bench.arrivals import arrival_times


def test_the_seed_alone_decides_the_schedule() -> None:
    assert arrival_times(50, 4.0, 1.0, 7) == arrival_times(50, 4.0, 1.0, 7)
    assert arrival_times(50, 4.0, 1.0, 7) != arrival_times(50, 4.0, 1.0, 8)


def test_times_ascend_and_end_at_count_over_rate() -> None:
    times = arrival_times(200, 4.0, 1.0, 0)
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] == pytest.approx(50.0)


def test_gaps_of_a_poisson_process_vary_as_much_as_their_mean() -> None:
    gaps = np.diff(arrival_times(20_000, 10.0, 1.0, 3))
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(1.0, abs=0.05)


def test_burstiness_sets_the_spread_of_the_gaps() -> None:
    for burstiness in (0.25, 4.0):
        gaps = np.diff(arrival_times(20_000, 10.0, burstiness, 3))
        assert np.std(gaps) / np.mean(gaps) == pytest.approx(burstiness**-0.5, rel=0.05)


def test_infinite_burstiness_is_a_fixed_gap_and_infinite_rate_sends_all_at_once() -> None:
    assert arrival_times(4, 2.0, math.inf, 0) == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert arrival_times(3, math.inf, 1.0, 0) == [0.0, 0.0, 0.0]
    assert arrival_times(0, 2.0, 1.0, 0) == []


@pytest.mark.parametrize(
    ("count", "rate", "burstiness"), [(-1, 1.0, 1.0), (1, 0.0, 1.0), (1, 1.0, 0.0), (1, math.nan, 1.0)]
)
def test_senseless_arguments_are_refused(count: int, rate: float, burstiness: float) -> None:
    with pytest.raises(ValueError, match=r"above zero|negative"):
        arrival_times(count, rate, burstiness, 0)
