"""Measures what moving pages costs on an engine in this process: preempting a running sequence, and restoring prefixes.

Limits stand beside the figures: the machine's memcpy, what reading the same files takes, and computing the tokens anew.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forebay.bench.agents import ask, wait
from forebay.core.messages import TierStats
from forebay.core.request import GenerateRequest, Priority, SamplingParams
from forebay.engine import WorkerOptions
from forebay.engine.build import build_engine
from forebay.engine.engine import Engine

Report = Callable[[str, float], None]

_ASKER_TOKENS = 64
_READ = 8 << 20


@dataclass(slots=True)
class _Preemptions:
    seconds: list[float] = field(default_factory=list)
    copied: list[int] = field(default_factory=list)


def measure_preemption(options: WorkerOptions, lengths: Sequence[int], rounds: int, report: Report) -> dict[str, Any]:
    """Time from the plan that preempts a decoding victim to the start of the critical prompt's prefill.

    `options` must allow one running sequence only, so that every critical request preempts. The victim's prompt has
    `lengths` tokens, and up to 21 of its answer are there. Raises ForebayError or ValueError when that does not fit.
    """
    engine = build_engine(options, report)
    ids = _tokens(engine, max(lengths), 3)
    by_length: dict[int, _Preemptions] = {}
    try:
        for length in lengths:
            report(f"victim of {length} tokens", 0.0)
            by_length[length] = _preempt(engine, ids[:length], rounds, report)
        page_bytes = _tiers(engine).page_bytes
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


def measure_restore(options: WorkerOptions, tokens: int, report: Report) -> dict[str, Any]:
    """Speed of loading `tokens` cached tokens from the host pool, and from disk with the system's page cache dropped.

    `options` must name a cache directory. Raises ForebayError or ValueError when that does not fit the model.
    """
    engine = build_engine(options, report)
    ids = _tokens(engine, tokens, 5)
    try:
        report("computing", 0.0)
        computed = ask(engine, "computed", ids, 1)[0].ttft_s
        _settle(engine)
        host = max(_restore(engine, f"host-{i}", ids, report) for i in range(3))
        size = tokens // 16 * _tiers(engine).page_bytes
    finally:
        engine.close()
    disk, raw = 0.0, 0.0
    for i in range(2):
        raw = max(raw, _raw_read(Path(options.cache_dir or ""), size))
        engine = build_engine(options, report)
        try:
            disk = max(disk, _restore(engine, f"disk-{i}", ids, report))
        finally:
            engine.close()
    copy = memcpy_gbps(size)
    return {
        "host": {
            "gbps": round(host, 2),
            "of_memcpy": round(host / copy, 3),
            "times_recompute": round(computed / (size / host / 1e9), 1),
        },
        "disk": {
            "gbps": round(disk, 2),
            "of_raw_read": round(disk / raw, 3),
            "times_recompute": round(computed / (size / disk / 1e9), 1),
        },
        "memcpy_gbps": round(copy, 2),
        "raw_read_gbps": round(raw, 2),
        "recompute_s": round(computed, 2),
        "tokens": tokens,
        "bytes": size,
    }


def _restore(engine: Engine, name: str, ids: list[int], report: Report) -> float:
    """GB/s of one load of all pages of `ids`. Raises ValueError when not all of them came from below."""
    report(f"restoring, {name}", 0.0)
    engine.forget_device()
    moves = engine.moves
    turn, _ = ask(engine, name, ids, 1)
    if moves is None or turn.cached < len(ids) - 17:
        raise ValueError(f"only {turn.cached} of {len(ids)} tokens were restored")
    return turn.cached // 16 * _tiers(engine).page_bytes / moves.times.loads[-1] / 1e9


def memcpy_gbps(size: int) -> float:
    """The machine's copying speed for `size` bytes on one thread, best of five; bytes copied, not moved both ways."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        ctypes.memmove(target.ctypes.data, source.ctypes.data, size)
        best = max(best, size / (time.perf_counter() - began) / 1e9)
    return best


def _raw_read(folder: Path, size: int) -> float:
    """GB/s of reading up to `size` bytes of the store's files in order, none of them in memory before or after."""
    extents = sorted((folder / "extents").iterdir())
    _drop(extents)
    buffer, left, began = bytearray(_READ), size, time.perf_counter()
    for extent in extents:
        with extent.open("rb", buffering=0) as file:
            while left > 0 and (count := file.readinto(buffer)):
                left -= count
    seconds = time.perf_counter() - began
    _drop(extents)
    return (size - max(left, 0)) / seconds / 1e9


def _drop(files: Sequence[Path]) -> None:
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


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


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    return {f"p{p}": round(1000 * float(np.percentile(seconds, p)), 3) for p in (50, 99)}
