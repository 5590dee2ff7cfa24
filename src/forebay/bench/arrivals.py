"""When the requests of a load test are sent: a pure function of rate, burstiness and seed. Not the sending itself."""

from __future__ import annotations

import math

import numpy as np


def arrival_times(count: int, rate: float, burstiness: float, seed: int) -> list[float]:
    """Seconds from the start of the run at which each of `count` requests is sent, in ascending order.

    `rate` is in requests per second; infinity sends all at once. The gaps are gamma-distributed with shape
    `burstiness`: 1 is a Poisson process, less comes in bursts, more is smoother, infinity is a fixed gap. The gaps are
    scaled so that the last request leaves at count / rate, which keeps the offered load equal between seeds.

    Raises ValueError when count is negative or rate or burstiness is not positive.
    """
    if count < 0:
        raise ValueError(f"The number of requests is {count}; it can't be negative.")
    if not rate > 0 or not burstiness > 0:
        raise ValueError(f"Request rate ({rate}) and burstiness ({burstiness}) must be above zero.")
    if count == 0 or math.isinf(rate):
        return [0.0] * count
    if math.isinf(burstiness):
        gaps = np.full(count, 1.0 / rate)
    else:
        gaps = np.random.default_rng(seed).gamma(burstiness, 1.0 / (rate * burstiness), count)
    times = np.cumsum(gaps)
    # With extreme burstiness every gap can underflow to zero; then there is nothing to scale.
    scale = count / rate / times[-1] if times[-1] > 0 else 1.0
    return [float(time) for time in times * scale]
