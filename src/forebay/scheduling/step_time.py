"""How long a step takes, learned from the steps so far. It knows sums of tokens, not sequences, and no clock."""

from __future__ import annotations


class StepTimeModel:
    """seconds = a + b * prefill tokens + c * decode rows + d * attention work, fitted online."""

    def predict(self, tokens: int, rows: int, attention: int) -> float:
        """Seconds for `tokens` prefill tokens and `rows` decode rows whose tokens see `attention` tokens in sum."""
        raise NotImplementedError

    def observe(self, tokens: int, rows: int, attention: int, actual_s: float) -> None:
        """Learn from a step that took `actual_s` seconds."""
        raise NotImplementedError
