"""Measures what write-through costs decode: the same answers with pages copied down meanwhile, and without.

Two engines in this process take turns, so that what else the machine does meets both alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from forebay.core.messages import TokenOutput
from forebay.core.request import GenerateRequest, SamplingParams
from forebay.engine import WorkerOptions
from forebay.engine.build import build_engine
from forebay.engine.engine import Engine

Report = Callable[[str, float], None]

_PROMPT = 32


def measure_write_through(
    options: WorkerOptions, rows: int, tokens: int, rounds: int, report: Report
) -> dict[str, Any]:
    """Decode speed of `rows` sequences of `tokens` tokens each, median of `rounds`: with the tiers of `options`, and
    with the device alone. Raises ForebayError or ValueError when that does not fit.
    """
    plain = msgspec.structs.replace(options, host_pool=0, cache_dir=None, cache_required=False)
    engines = {"with": build_engine(options, report)}
    try:
        engines["without"] = build_engine(plain, report)
        rates: dict[str, list[float]] = {name: [] for name in engines}
        for i in range(rounds + 1):
            report("decoding", i / (rounds + 1))
            for name in list(engines) if i % 2 else list(engines)[::-1]:
                rate = _decode(engines[name], i, rows, tokens)
                if i:  # the first round warms up
                    rates[name].append(rate)
        tiers = engines["with"].stats().tiers
    finally:
        for engine in engines.values():
            engine.close()
    if tiers is None:
        raise ValueError("the engine has no host pool")
    with_it, without = (statistics.median(rates[name]) for name in ("with", "without"))
    return {
        "decode_tokens_per_s": round(with_it, 1),
        "decode_tokens_per_s_without": round(without, 1),
        "cost": round(1 - with_it / without, 4),
        "spread": round(max(_spread(found) for found in rates.values()), 4),
        "pages_written": int(tiers.counters["saved"]),
        "pages_to_disk": int(tiers.counters["spilled"]),
        "rows": rows,
        "tokens": tokens,
        "rounds": rounds,
    }


def _decode(engine: Engine, round_: int, rows: int, tokens: int) -> float:
    """Tokens a second from the step in which every row decodes to the end. Raises ValueError when one fails."""
    random = np.random.default_rng(round_)
    sampling = SamplingParams(max_tokens=tokens, temperature=0.0)
    for row in range(rows):
        ids = list(map(int, random.integers(0, engine.info.vocab_size, _PROMPT)))
        engine.submit(GenerateRequest(id=f"{round_}-{row}", prompt_ids=ids, sampling=sampling))
    begun: set[str] = set()
    while len(begun) < rows:
        begun.update(output.request_id for output in _step(engine))
    count, began = 0, time.perf_counter()
    while engine.has_work:
        count += sum(len(output.token_ids) for output in _step(engine))
    return count / (time.perf_counter() - began)


def _step(engine: Engine) -> list[TokenOutput]:
    outputs = engine.step()
    for output in outputs:
        if output.error is not None:
            raise ValueError(output.error)
    return outputs


def _spread(rates: list[float]) -> float:
    """How far apart the middle half of the rounds lies, as a share of the median."""
    low, middle, high = np.percentile(rates, (25, 50, 75))
    return float((high - low) / middle)
