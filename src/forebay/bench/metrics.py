"""From the timings of requests to the figures of a report, under the field names of `vllm bench serve`. Pure.

TTFT is the time from sending to the first token's event, ITL the gap between two successive token events, TPOT the
mean time per token after the first, E2EL the time from sending to the end of the answer. All in seconds here, in
milliseconds in the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

METRICS = ("ttft", "tpot", "itl", "e2el")
GOODPUT_METRICS = ("ttft", "tpot", "e2el")
DETAIL_FIELDS = (
    "input_lens",
    "output_lens",
    "ttfts",
    "itls",
    "latencies",
    "start_times",
    "queue_times",
    "generated_texts",
    "errors",
)


@dataclass(slots=True)
class RequestResult:
    """What one request took. Times are seconds; `start` is on the run's clock. `error` is empty when it succeeded."""

    start: float = 0.0
    ttft: float = 0.0
    itls: list[float] = field(default_factory=list)
    latency: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    text: str = ""
    error: str = ""
    queue_time: float = 0.0
    """Time spent waiting for the client's own concurrency limit, before `start`."""

    @property
    def ok(self) -> bool:
        """Whether the whole answer arrived."""
        return not self.error

    @property
    def tpot(self) -> float:
        """Seconds per token after the first; 0 for an answer of one token."""
        return (self.latency - self.ttft) / (self.output_tokens - 1) if self.output_tokens > 1 else 0.0


def summarise(
    results: Sequence[RequestResult],
    duration: float,
    *,
    metrics: Iterable[str] = METRICS,
    percentiles: Iterable[float] = (99.0,),
    goodput: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The report of a run that took `duration` seconds, detail arrays included.

    `goodput` maps ttft, tpot or e2el to its limit in milliseconds: a request is good when it meets all of them.
    Failed requests count only in `failed` and in the detail arrays.
    """
    done = [result for result in results if result.ok]
    total_in = sum(result.prompt_tokens for result in done)
    total_out = sum(result.output_tokens for result in done)
    seconds = max(duration, 1e-9)
    peak_tokens, peak_requests = peaks(done)
    report: dict[str, Any] = {
        "duration": duration,
        "completed": len(done),
        "failed": len(results) - len(done),
        "total_input_tokens": total_in,
        "total_output_tokens": total_out,
        "request_throughput": len(done) / seconds,
        "request_goodput": count_good(done, goodput) / seconds if goodput else None,
        "output_throughput": total_out / seconds,
        "total_token_throughput": (total_in + total_out) / seconds,
        "max_output_tokens_per_s": peak_tokens,
        "max_concurrent_requests": peak_requests,
        "rtfx": 0.0,
    }
    values = latency_values(done)
    levels = tuple(percentiles)
    for metric in metrics:
        report |= distribution(metric, values[metric], levels)
    return report | _details(results)


def latency_values(done: Sequence[RequestResult]) -> dict[str, list[float]]:
    """The samples of each metric, in seconds; an answer of one token has no TPOT."""
    return {
        "ttft": [result.ttft for result in done],
        "tpot": [result.tpot for result in done if result.output_tokens > 1],
        "itl": [gap for result in done for gap in result.itls],
        "e2el": [result.latency for result in done],
    }


def distribution(metric: str, seconds: Sequence[float], percentiles: Iterable[float]) -> dict[str, float]:
    """Mean, median, standard deviation, percentiles (linear interpolation) in milliseconds; zeros without samples."""
    samples = np.asarray(seconds or [0.0]) * 1000.0
    fields = {
        f"mean_{metric}_ms": float(np.mean(samples)),
        f"median_{metric}_ms": float(np.median(samples)),
        f"std_{metric}_ms": float(np.std(samples)),
    }
    for level in percentiles:
        fields[f"p{level:g}_{metric}_ms"] = float(np.percentile(samples, level))
    return fields


def count_good(done: Sequence[RequestResult], goodput: Mapping[str, float]) -> int:
    """How many requests meet every limit of `goodput` (milliseconds)."""
    return sum(
        all(_goodput_value(result, name) * 1000.0 <= limit for name, limit in goodput.items()) for result in done
    )


def _goodput_value(result: RequestResult, name: str) -> float:
    return {"ttft": result.ttft, "tpot": result.tpot, "e2el": result.latency}[name]


def peaks(done: Sequence[RequestResult]) -> tuple[float, int]:
    """Most token events and most requests under way in one second, seconds counted from the first start."""
    if not done:
        return 0.0, 0
    origin = min(result.start for result in done)
    seconds = int(max(result.start + result.latency for result in done) - origin) + 1
    tokens = np.zeros(seconds)
    active = np.zeros(seconds, dtype=np.int64)
    for result in done:
        first = result.start - origin
        times = first + result.ttft + np.concatenate(([0.0], np.cumsum(result.itls)))
        np.add.at(tokens, np.clip(times.astype(np.int64), 0, seconds - 1), 1)
        active[int(first) : int(first + result.latency) + 1] += 1
    return float(tokens.max()), int(active.max())


def _details(results: Sequence[RequestResult]) -> dict[str, Any]:
    return {
        "input_lens": [result.prompt_tokens for result in results],
        "output_lens": [result.output_tokens if result.ok else 0 for result in results],
        "ttfts": [result.ttft for result in results],
        "itls": [result.itls for result in results],
        "latencies": [result.latency for result in results],
        "start_times": [result.start for result in results],
        "queue_times": [result.queue_time for result in results],
        "generated_texts": [result.text for result in results],
        "errors": [result.error for result in results],
    }


def without_details(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report without its per-request arrays."""
    return {name: value for name, value in report.items() if name not in DETAIL_FIELDS}


def parse_goodput(pairs: Iterable[str]) -> dict[str, float]:
    """`["ttft:500", "tpot:50"]` → limits in milliseconds.

    Raises ValueError naming the pair that is not NAME:MILLISECONDS with a known name and a positive number.
    """
    limits: dict[str, float] = {}
    for pair in pairs:
        name, _, text = pair.partition(":")
        try:
            limit = float(text)
        except ValueError:
            limit = 0.0
        if name not in GOODPUT_METRICS or not limit > 0:
            raise ValueError(f"{pair!r} is no goodput limit; write NAME:MILLISECONDS, NAME one of ttft, tpot, e2el.")
        limits[name] = limit
    return limits
