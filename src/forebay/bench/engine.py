"""Measures the engine by itself, in this process: scheduler, model, kernels and sampler; no HTTP and no socket.

Prefill is one prompt from submission to its first token. Decode is a number of sequences that all generate, sampling
greedily. Each figure is the median of several runs after one that warms up.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from forebay import __version__
from forebay.core.request import GenerateRequest, SamplingParams
from forebay.engine import WorkerOptions
from forebay.engine.build import build_engine
from forebay.engine.engine import Engine
from forebay.kernels import load_kernels
from forebay.kernels.cpu import cpu_info
from forebay.kernels.known_limits import remember
from forebay.kernels.limits import MachineLimits, measure_limits

DECODE_STEPS = 16
"""Steps in one timed run of decode."""
_NO_TARGET_S = 60.0
"""No step is kept short for the sake of other rows: each measurement has rows of one kind only."""

Report = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """What is measured."""

    prefill: tuple[int, ...] = (512, 2048)
    """Prompt lengths in tokens."""
    rows: tuple[int, ...] = (1, 8, 32)
    """Numbers of sequences that decode at once."""
    context: int = 128
    """Tokens of each sequence when its decode begins to be timed; it grows by `DECODE_STEPS` a run."""
    repeat: int = 5


def measure_engine(options: WorkerOptions, plan: EnginePlan, report: Report) -> dict[str, Any]:
    """Load the model and measure; `report` is called with each stage and its share done.

    Raises ForebayError when the model can't be loaded or a measurement does not fit its context.
    """
    engine = build_engine(options, report)
    report("measuring the machine's limits", 0.0)
    kernels = load_kernels(options.kernels, engine.info.activations)
    before = measure_limits(kernels)
    prefill = {length: _prefill(engine, length, plan.repeat, report) for length in plan.prefill}
    decode = {rows: _decode(engine, rows, plan, report) for rows in plan.rows}
    # Other work on the machine only ever makes a limit too small, so the better of two measurements counts.
    after = measure_limits(kernels)
    best = remember(
        kernels,
        MachineLimits(
            read_gbps=max(before.read_gbps, after.read_gbps), gemm_gflops=max(before.gemm_gflops, after.gemm_gflops)
        ),
    )
    read_gbps, gemm_gflops = best.read_gbps, best.gemm_gflops
    cost = engine.work.cost
    # The layers' products alone, which is the share that is comparable between lengths; and with attention's work.
    flops = {length: rate * cost.layer_flops / 1e9 / gemm_gflops for length, rate in prefill.items()}
    whole = {
        length: rate * (cost.layer_flops + cost.attention_flops * (length + 1) / 2) / 1e9 / gemm_gflops
        for length, rate in prefill.items()
    }
    middle = plan.context + DECODE_STEPS * (plan.repeat + 1) // 2
    reads = {rows: cost.decode_bytes(rows, middle) * rate / rows / 1e9 / read_gbps for rows, rate in decode.items()}
    return {
        "prefill": _rounded(prefill, 1),
        "decode": _rounded(decode, 1),
        "limits": {"gemm_gflops": round(gemm_gflops, 1), "read_gbps": round(read_gbps, 1)},
        "mfu_prefill": round(flops[plan.prefill[0]], 3),
        "mfu_prefill_by_length": _rounded(flops, 3),
        "mfu_prefill_with_attention": _rounded(whole, 3),
        "read_share_decode": _rounded(reads, 3),
        "context": plan.context,
        "repeat": plan.repeat,
        **_described(engine, options),
    }


def engine_options(model: str, plan: EnginePlan, base: dict[str, Any]) -> WorkerOptions:
    """Options under which each measurement runs as one kind of step: no prefix cache, room for the most rows."""
    return WorkerOptions(model=model, prefix_cache=False, target_itl_s=_NO_TARGET_S, max_running=max(plan.rows), **base)


def _prefill(engine: Engine, length: int, repeat: int, report: Report) -> float:
    rates = []
    for run in range(repeat + 1):
        report(f"prefill of {length} tokens", run / (repeat + 1))
        engine.submit(_request(f"prefill-{length}-{run}", engine, length, 1, run))
        started = time.perf_counter()
        _step_until(engine, 1)
        rates.append(length / (time.perf_counter() - started))
    return statistics.median(rates[1:])


def _decode(engine: Engine, rows: int, plan: EnginePlan, report: Report) -> float:
    names = [f"decode-{rows}-{row}" for row in range(rows)]
    most = DECODE_STEPS * (plan.repeat + 1) + rows + 1
    report(f"decode of {rows} sequences", 0.0)
    for seed, name in enumerate(names):
        engine.submit(_request(name, engine, plan.context, most, seed))
    _step_until(engine, rows)
    rates = []
    for run in range(plan.repeat + 1):
        report(f"decode of {rows} sequences", run / (plan.repeat + 1))
        started = time.perf_counter()
        tokens = sum(len(output.token_ids) for _ in range(DECODE_STEPS) for output in engine.step())
        rates.append(tokens / (time.perf_counter() - started))
    for name in names:
        engine.abort(name)
    return statistics.median(rates[1:])


def _step_until(engine: Engine, answers: int) -> None:
    """Step until this many different requests have given a token. Raises ValueError when one was refused."""
    seen: set[str] = set()
    while len(seen) < answers:
        for output in engine.step():
            if output.error is not None:
                raise ValueError(output.error)
            seen.add(output.request_id)


def _request(name: str, engine: Engine, prompt: int, answer: int, seed: int) -> GenerateRequest:
    ids = np.random.default_rng(seed).integers(0, engine.info.vocab_size, prompt).tolist()
    return GenerateRequest(id=name, prompt_ids=ids, sampling=SamplingParams(max_tokens=answer, temperature=0.0))


def _rounded(figures: dict[int, float], digits: int) -> dict[str, float]:
    return {str(key): round(value, digits) for key, value in figures.items()}


def _described(engine: Engine, options: WorkerOptions) -> dict[str, Any]:
    cpu = cpu_info()
    return {
        "model": engine.info.name,
        "parameters": engine.info.parameters,
        "weight_bytes": engine.info.weight_bytes,
        "dtype": options.dtype,
        "quantize": options.quantize,
        "activations": engine.info.activations,
        "kernels": engine.info.kernels,
        "threads": torch.get_num_threads(),
        "cpu": cpu.model,
        "cpu_flags": list(cpu.flags),
        "versions": {"forebay": __version__, "torch": version("torch"), "python": platform.python_version()},
    }
