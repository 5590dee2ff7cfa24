"""How long a step takes, learned from the steps so far. It knows sums of tokens, not sequences, and no clock."""

from __future__ import annotations

from math import exp, log

_UNITS = (1.0, 1 / 256, 1 / 8, 1 / 65536)
"""Scale the features (1, tokens, rows, attention) to about 1, so that the fit is well conditioned."""
_SWEEPS = 8
"""Coordinate-descent sweeps for each observation; each starts from the last solution, so few are enough."""
_KEEP = 1e-3
"""Weight of the present coefficients in the fit: holds those that recent steps say nothing about."""
_TRUST = 3.0
"""A step counts at most as this many usual deviations from its prediction, so a stall moves the fit no further."""


class StepTimeModel:
    """seconds = a + b * prefill tokens + c * decode rows + d * attention work, fitted online, no coefficient below 0.

    Recursive least squares in information form (sums of products, forgotten geometrically), solved for non-negative
    coefficients by projected coordinate descent. Errors are relative to the prediction, so short steps count as much
    as long ones.
    """

    def __init__(
        self, prior: tuple[float, float, float, float] = (0.005, 0.001, 0.002, 1e-7), forgetting: float = 0.98
    ) -> None:
        """`prior` (a, b, c, d) in seconds holds until steps say otherwise; a step weighs `forgetting` less with each
        newer one."""
        if min(prior) < 0 or not 0 < forgetting < 1:
            raise ValueError("prior coefficients must not be negative, and forgetting must lie between 0 and 1")
        self._theta = [coefficient / unit for coefficient, unit in zip(prior, _UNITS, strict=True)]
        self._forgetting = forgetting
        self._products = [[0.0] * 4 for _ in range(4)]
        self._targets = [0.0] * 4
        self._deviation = 0.5
        self.observations = 0

    @property
    def coefficients(self) -> tuple[float, float, float, float]:
        """(a, b, c, d) in seconds: a step, a prefill token, a decode row, one token seen by one token."""
        a, b, c, d = (value * unit for value, unit in zip(self._theta, _UNITS, strict=True))
        return a, b, c, d

    def predict(self, tokens: int, rows: int, attention: int) -> float:
        """Seconds for `tokens` prefill tokens and `rows` decode rows whose tokens see `attention` tokens in sum."""
        a, b, c, d = self._theta
        return a + b * _UNITS[1] * tokens + c * _UNITS[2] * rows + d * _UNITS[3] * attention

    def observe(self, tokens: int, rows: int, attention: int, actual_s: float) -> None:
        """Learn from a step that took `actual_s` seconds; times that are not above 0 are ignored."""
        if actual_s <= 0.0:
            return
        predicted = max(self.predict(tokens, rows, attention), 1e-6)
        believed = predicted * exp(self._believe(log(actual_s / predicted)))
        weight = 1.0 / max(predicted, believed)
        features = (weight, weight * tokens * _UNITS[1], weight * rows * _UNITS[2], weight * attention * _UNITS[3])
        self._add(features, believed * weight)
        self._solve()
        self.observations += 1

    def _believe(self, deviation: float) -> float:
        """The log deviation to learn from: bounded by what is usual, which in turn grows while steps keep deviating."""
        bound = _TRUST * self._deviation
        seen = min(abs(deviation), bound)
        self._deviation = min(1.0, max(0.03, 0.9 * self._deviation + 0.1 * seen))
        return max(-bound, min(bound, deviation))

    def _add(self, features: tuple[float, float, float, float], target: float) -> None:
        """Add a step to the sums. While steps keep deviating much, older ones are forgotten faster: they mislead."""
        keep = max(0.5, 1.0 - (1.0 - self._forgetting) * (1.0 + 25.0 * max(0.0, self._deviation - 0.3)))
        for i, x in enumerate(features):
            row = self._products[i]
            self._targets[i] = keep * self._targets[i] + x * target
            for j, y in enumerate(features):
                row[j] = keep * row[j] + x * y

    def _solve(self) -> None:
        theta, anchor = self._theta, tuple(self._theta)
        diagonal = [self._products[i][i] for i in range(4)]
        keep = _KEEP * max(diagonal)
        for _ in range(_SWEEPS):
            for i, row in enumerate(self._products):
                rest = row[0] * theta[0] + row[1] * theta[1] + row[2] * theta[2] + row[3] * theta[3] - row[i] * theta[i]
                theta[i] = max(0.0, (self._targets[i] + keep * anchor[i] - rest) / (row[i] + keep))
