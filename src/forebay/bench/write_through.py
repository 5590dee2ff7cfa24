"""Measures what write-through costs decode: the same answers with pages saved below meanwhile, and without.

Two engines in this process decode the same sequences and take turns every 32 steps, so that what else the machine does
meets both alike, and each stretch of one has a stretch of the other beside it, at the same length of context.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from forebay.core.messages import TokenOutput
from forebay.core.request import GenerateRequest, SamplingParams
from forebay.engine import WorkerOptions
from forebay.engine.build import build_engine
from forebay.engine.engine import Engine
from forebay.kernels.interface import PAGE_TOKENS

Report = Callable[[str, float], None]

_STRETCH = 2 * PAGE_TOKENS
"""Steps of a stretch: eight rows fill as many pages as are written to disk at a time."""

_PROMPT = 2 * PAGE_TOKENS + PAGE_TOKENS // 2
"""Half a page beyond full ones, so that every row fills its pages well within a stretch, and their copying down, to the
disk too, falls into the same stretch."""


@dataclass(slots=True)
class _Times:
    """Seconds of stretches of decode, in pairs."""

    with_it: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)

    def costs(self) -> list[float]:
        """What each pair says, as a share of the time without; least first."""
        return sorted(a / b - 1 for a, b in zip(self.with_it, self.without, strict=True))


def measure_write_through(
    options: WorkerOptions, rows: int, tokens: int, rounds: int, report: Report
) -> dict[str, Any]:
    """Decode of `rows` sequences of `tokens` tokens each, `rounds` times: with the tiers of `options`, and with the
    device alone.

    `cost` is the median over all pairs of stretches of how much longer one takes with write-through; `cost_range` holds
    the true median with 95 % confidence, whatever the distribution; `spread` is how far apart the middle half of the
    pairs lies. Raises ForebayError or ValueError when that does not fit, or `tokens` are too few for a stretch.
    """
    if tokens <= _STRETCH:
        raise ValueError(f"an answer needs more than {_STRETCH} tokens")
    plain = msgspec.structs.replace(options, host_pool=0, cache_dir=None, cache_required=False)
    engine = build_engine(options, report)
    try:
        other = build_engine(plain, report)
        try:
            times = _Times()
            for i in range(rounds + 1):
                report("decoding", i / (rounds + 1))
                found = _round(engine, other, i, rows, tokens)
                if i:  # the first round warms up
                    times.with_it += found.with_it
                    times.without += found.without
            tiers = engine.stats().tiers
        finally:
            other.close()
    finally:
        engine.close()
    if tiers is None:
        raise ValueError("the engine has no host pool")
    return _figures(times, rows * _STRETCH) | {
        "pages_written": int(tiers.counters["saved"]),
        "pages_to_disk": int(tiers.counters["spilled"]),
        "rows": rows,
        "tokens": tokens,
        "rounds": rounds,
    }


def _figures(times: _Times, tokens: int) -> dict[str, Any]:
    """`tokens` are those of a stretch."""
    costs = times.costs()
    low, high = median_range(len(costs))
    quarter, three_quarters = np.percentile(costs, (25, 75))
    return {
        "decode_tokens_per_s": round(tokens / statistics.median(times.with_it), 1),
        "decode_tokens_per_s_without": round(tokens / statistics.median(times.without), 1),
        "cost": round(statistics.median(costs), 4),
        "cost_range": [round(costs[low], 4), round(costs[high], 4)],
        "spread": round(float(three_quarters - quarter), 4),
        "pairs": len(costs),
    }


def median_range(count: int) -> tuple[int, int]:
    """Which of `count` sorted values hold the median of what they are drawn from between them, with 95 % confidence
    (or as much as so few give): each value lies below it with a chance of one half.
    """
    below, total = 0, 0.0
    while below < (count - 1) // 2 and (total := total + math.comb(count, below) / 2**count) <= 0.025:
        below += 1
    low = max(below - 1, 0)
    return low, count - 1 - low


def _round(engine: Engine, other: Engine, number: int, rows: int, tokens: int) -> _Times:
    """The same answers on both engines, in turns. Raises ValueError when one fails."""
    times = _Times()
    furthest = max(_begin(each, number, rows, tokens) for each in (engine, other))
    for stretch in range((tokens - furthest) // _STRETCH):
        if (number + stretch) % 2:
            times.with_it.append(_decode(engine, rows))
            times.without.append(_decode(other, rows))
        else:
            times.without.append(_decode(other, rows))
            times.with_it.append(_decode(engine, rows))
    for each in (engine, other):
        while each.has_work:
            _step(each)
    return times


def _begin(engine: Engine, number: int, rows: int, tokens: int) -> int:
    """Submit, and step until every row has its first token; returns how many the furthest one has then."""
    random = np.random.default_rng(number)
    sampling = SamplingParams(max_tokens=tokens, temperature=0.0)
    for row in range(rows):
        ids = list(map(int, random.integers(0, engine.info.vocab_size, _PROMPT)))
        engine.submit(GenerateRequest(id=f"{number}-{row}", prompt_ids=ids, sampling=sampling))
    found: Counter[str] = Counter()
    while len(found) < rows:
        for output in _step(engine):
            found[output.request_id] += len(output.token_ids)
    return max(found.values())


def _decode(engine: Engine, rows: int) -> float:
    """Seconds of a stretch of steps. Raises ValueError when not every row decodes in each of them."""
    began = time.perf_counter()
    count = sum(len(output.token_ids) for _ in range(_STRETCH) for output in _step(engine))
    seconds = time.perf_counter() - began
    if count != rows * _STRETCH:
        raise ValueError(f"{rows} rows gave {count} tokens in {_STRETCH} steps")
    return seconds


def _step(engine: Engine) -> list[TokenOutput]:
    outputs = engine.step()
    for output in outputs:
        if output.error is not None:
            raise ValueError(output.error)
    return outputs
