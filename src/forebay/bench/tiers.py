"""Measures what moving pages costs on an engine in this process: preempting a running sequence, and restoring prefixes.

Limits stand beside the figures: the machine's memcpy, what reading the same files takes, and computing the tokens anew.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forebay.bench.agents import ask, wait
from forebay.bench.raw_speed import memcpy_gbps, raw_reads_gbps
from forebay.core.messages import TierStats
from forebay.core.request import GenerateRequest, Priority, SamplingParams
from forebay.engine import WorkerOptions
from forebay.engine.build import build_engine
from forebay.engine.engine import Engine
from forebay.engine.moves import PageMoves
from forebay.fabric.extents import EXTENTS

Report = Callable[[str, float], None]

_ASKER_TOKENS = 64


@dataclass(slots=True)
class _Preemptions:
    seconds: list[float] = field(default_factory=list)
    copied: list[int] = field(default_factory=list)


def measure_preemption(options: WorkerOptions, lengths: Sequence[int], rounds: int, report: Report) -> dict[str, Any]:
    """Time from the plan that preempts a decoding victim to the start of the critical prompt's prefill.

    `options` must allow one running sequence only, so that every critical request preempts. The victim's prompt has
    `lengths` tokens, and up to 21 of its answer are there. `copied_…` are the pages saved at once: copied to the host
    pool if `host_copies`, else checked, and left where both refer to them. Raises ForebayError or ValueError when that
    does not fit.
    """
    engine = build_engine(options, report)
    ids = _tokens(engine, max(lengths), 3)
    by_length: dict[int, _Preemptions] = {}
    try:
        for length in lengths:
            report(f"victim of {length} tokens", 0.0)
            by_length[length] = _preempt(engine, ids[:length], rounds, report)
        page_bytes, copies = _tiers(engine).page_bytes, _moves(engine).copies
    finally:
        engine.close()
    seconds = [s for found in by_length.values() for s in found.seconds]
    copied = [c for found in by_length.values() for c in found.copied]
    return {
        "preempt_ms": _percentiles(seconds),
        "by_victim_tokens": {str(length): _percentiles(found.seconds) for length, found in by_length.items()},
        "copied_bytes_p99": int(np.percentile(copied, 99)) * page_bytes,
        "copied_pages_p50": float(np.median(copied)),
        "page_bytes": page_bytes,
        "preemptions": len(seconds),
        "host_copies": copies,
    }


def _preempt(engine: Engine, ids: list[int], rounds: int, report: Report) -> _Preemptions:
    """A new victim each round, since waiting ages one until nobody may preempt it; its prompt is cached by then."""
    found = _Preemptions()
    for i in range(rounds):
        report(f"victim of {len(ids)} tokens", i / rounds)
        victim, asker = f"victim-{len(ids)}-{i}", f"asker-{len(ids)}-{i}"
        _submit(engine, victim, ids, 64, Priority.BACKGROUND_BATCH)
        for _ in range(2 + i * 7 % 20):
            while not _step(engine, victim):
                pass
        stats = engine.stats()
        _submit(engine, asker, _tokens(engine, _ASKER_TOKENS, 1000 + i), 1, Priority.CRITICAL_INTERACTIVE)
        while engine.stats().preemptions == stats.preemptions:
            engine.step()
        found.seconds.append(engine.planning_s)
        found.copied.append(_tiers(engine).urgent_saves - (stats.tiers.urgent_saves if stats.tiers else 0))
        while not _step(engine, victim):
            pass
        engine.abort(victim)
    return found


def measure_restore(options: WorkerOptions, tokens: int, rounds: int, report: Report) -> dict[str, Any]:
    """Speed of loading `tokens` cached tokens from the host pool, and from disk with the system's page cache dropped.

    A load is timed from the step loop's asking to its end, with every page checked. From a host pool that has its
    memory in common with the device nothing is copied (`host_copies` is false): the rate is that of checking.

    Each round has the limit measured beside it, and the shares are medians over the rounds, with their range. From the
    host pool the limit is a memcpy of as many bytes on one thread, both sides touched before. A load from disk is the
    first one of an engine that has just been made, so the device memory is touched for the first time in it; its limit
    is the fastest way to read the same files into memory that is warm: buffered, direct, or four direct reads at a time
    (`raw_reads_gbps`).

    `options` must name a cache directory. Raises ForebayError or ValueError when that does not fit the model.
    """
    host, disk = _Shares([], []), _Shares([], [])
    with _as_in_a_worker(options, report) as engine:
        ids, copies = _tokens(engine, tokens, 5), _moves(engine).copies
        report("computing", 0.0)
        computed = ask(engine, "computed", ids, 1)[0].ttft_s
        _settle(engine)
        size = tokens // 16 * _tiers(engine).page_bytes
        for i in range(rounds):
            host.limits.append(memcpy_gbps(size))
            host.rates.append(_restore(engine, f"host-{i}", ids, report))
    raw: list[dict[str, float]] = []
    for i in range(rounds):
        raw.append(raw_reads_gbps(sorted((Path(options.cache_dir or "") / EXTENTS).iterdir()), size))
        disk.limits.append(max(raw[-1].values()))
        with _as_in_a_worker(options, report) as engine:
            disk.rates.append(_restore(engine, f"disk-{i}", ids, report))
    return {
        "host_copies": copies,
        "host": host.figures("of_memcpy", computed, size),
        "disk": disk.figures("of_raw_read", computed, size),
        "memcpy_gbps": round(statistics.median(host.limits), 2),
        "raw_read_gbps": round(statistics.median(disk.limits), 2),
        "raw_reads_gbps": {way: round(statistics.median(found[way] for found in raw), 2) for way in raw[0]},
        "recompute_s": round(computed, 4),
        "tokens": tokens,
        "bytes": size,
        "rounds": rounds,
    }


@contextmanager
def _as_in_a_worker(options: WorkerOptions, report: Report) -> Iterator[Engine]:
    """An engine whose objects Python's collector leaves alone, as in a worker: else it looks through all of torch's in
    the middle of a load."""
    engine = build_engine(options, report)
    gc.freeze()
    try:
        yield engine
    finally:
        engine.close()
        gc.unfreeze()


@dataclass(slots=True)
class _Shares:
    """GB/s of loads, and of what limits them, by round."""

    rates: list[float]
    limits: list[float]

    def figures(self, name: str, recompute_s: float, size: int) -> dict[str, Any]:
        """Medians over the rounds; the share of the limit is called `name`."""
        shares = [rate / limit for rate, limit in zip(self.rates, self.limits, strict=True)]
        rate = statistics.median(self.rates)
        return {
            "gbps": round(rate, 2),
            name: round(statistics.median(shares), 3),
            f"{name}_range": [round(min(shares), 3), round(max(shares), 3)],
            "times_recompute": round(recompute_s / (size / rate / 1e9), 1),
        }


def _restore(engine: Engine, name: str, ids: list[int], report: Report) -> float:
    """GB/s of one load of all pages of `ids`. Raises ValueError when not all of them came from below."""
    report(f"restoring, {name}", 0.0)
    engine.forget_device()
    turn, _ = ask(engine, name, ids, 1)
    if turn.cached < len(ids) - 17:
        raise ValueError(f"only {turn.cached} of {len(ids)} tokens were restored")
    return turn.cached // 16 * _tiers(engine).page_bytes / _moves(engine).times.loads[-1] / 1e9


def _settle(engine: Engine) -> None:
    """Until all that was computed is in the host pool and on disk. Raises ValueError when it does not get there."""
    for _ in range(60_000):
        engine.step()
        tiers = _tiers(engine)
        if not tiers.pages_writing and tiers.disk_pages >= tiers.host_pages:
            return
        time.sleep(0.001)
    raise ValueError("the pages did not reach the disk within a minute")


def _submit(engine: Engine, name: str, ids: list[int], tokens: int, priority: Priority) -> None:
    sampling = SamplingParams(max_tokens=tokens, temperature=0.0)
    engine.submit(GenerateRequest(id=name, prompt_ids=ids, sampling=sampling, priority=priority))


def _step(engine: Engine, name: str) -> bool:
    """One step; whether the request got a token. Raises ValueError when one failed."""
    outputs = engine.step()
    wait(engine)
    for output in outputs:
        if output.error is not None:
            raise ValueError(output.error)
    return any(output.request_id == name for output in outputs)


def _tokens(engine: Engine, count: int, seed: int) -> list[int]:
    return list(map(int, np.random.default_rng(seed).integers(0, engine.info.vocab_size, count)))


def _tiers(engine: Engine) -> TierStats:
    tiers = engine.stats().tiers
    if tiers is None:
        raise ValueError("the engine has no host pool")
    return tiers


def _moves(engine: Engine) -> PageMoves:
    if engine.moves is None:
        raise ValueError("the engine has no host pool")
    return engine.moves


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    return {f"p{p}": round(1000 * float(np.percentile(seconds, p)), 3) for p in (50, 99)}
