"""Counter-based randomness: a number that depends on (seed, choice, position) and on nothing else.

So a token does not depend on the batch it was sampled in, on the order of requests, on a preemption or on the worker.
The mixing function is the finaliser of SplitMix64 (Steele, Lea, Flood, 2014), applied once for each key.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def _mix(value: int) -> int:
    value = (value + _GAMMA) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits for the token at `position` of an answer (0 is its first)."""
    mixed = _mix(_mix(_mix(seed & _MASK) ^ choice) ^ position)
    return (mixed >> 11) * 2.0**-53
