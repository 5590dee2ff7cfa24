"""Measures our engine's prefill and decode, and the machine's limits, in a process of its own.

The argument is WorkerOptions; the rest is as the package says. A row is warmed up the first time.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import msgspec
import numpy as np

from forebay.core.request import GenerateRequest, SamplingParams
from forebay.engine import WorkerOptions
from forebay.engine.build import build_engine
from forebay.engine.engine import Engine
from forebay.kernels import load_kernels
from forebay.kernels.limits import MachineLimits, gemm_gflops, measure_limits

_WARM_CONTEXT = 16
_WARM_STEPS = 4
_SPARE_TOKENS = 512
"""Tokens that a sequence may give while the prompts of the others are still read."""


class Row(msgspec.Struct):
    """One row's work."""

    name: str
    sequences: int
    context: int
    tokens: int


_WAKING = Row("waking", sequences=1, context=_WARM_CONTEXT, tokens=_WARM_STEPS)
"""What is computed before the rows of each line: a process that was stopped may have lost pages of its files."""


def main() -> int:
    """Load the model, and measure what each line of standard input says."""
    options = msgspec.convert(json.loads(sys.argv[1]), WorkerOptions)
    engine = build_engine(options, lambda _stage, _share: None)
    kernels = load_kernels(options.kernels, engine.info.activations)
    floating = load_kernels(options.kernels, "bf16")
    _say({"ready": True})
    warmed: set[str] = set()
    for line in sys.stdin:
        rows = msgspec.convert(json.loads(line)["rows"], list[Row])
        before, floats = measure_limits(kernels), gemm_gflops(floating)
        _generate(engine, _WAKING, "waking", _WARM_CONTEXT, _WARM_STEPS)
        for row in rows:
            _say({"row": row.name} | _measured(engine, row, warm=row.name not in warmed))
            warmed.add(row.name)
        _say({"extras": _extras(engine, before, measure_limits(kernels), floats)})
    return 0


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _extras(engine: Engine, before: MachineLimits, after: MachineLimits, floats: float) -> dict[str, float]:
    cost = engine.work.cost
    return {
        "gemm_gflops": max(before.gemm_gflops, after.gemm_gflops),
        "float_gflops": floats,
        "read_gbps": max(before.read_gbps, after.read_gbps),
        "layer_flops": cost.layer_flops,
        "head_flops": cost.head_flops,
        "attention_flops": cost.attention_flops,
        "read_bytes": cost.weight_bytes,
        "weight_bytes": engine.info.weight_bytes,
        "kv_token_bytes": cost.kv_token_bytes,
        "parameters": engine.info.parameters,
    }


def _measured(engine: Engine, row: Row, *, warm: bool) -> dict[str, Any]:
    """What is said of the row: the rate of one run, after one that warms up when `warm`; or why there is none."""
    begun = time.perf_counter()
    try:
        if warm:
            _warm_up(engine, row)
        value = _generate(engine, row, "timed", row.context, row.tokens) if row.context else _prefill(engine, row, 1)
    except ValueError as error:
        return {"failure": str(error)}
    return {"value": value, "seconds": time.perf_counter() - begun}


def _warm_up(engine: Engine, row: Row) -> None:
    if row.context:
        _generate(engine, row, "warm", _WARM_CONTEXT, _WARM_STEPS)
    else:
        _prefill(engine, row, 0)


def _prefill(engine: Engine, row: Row, seed: int) -> float:
    started = time.perf_counter()
    _submit(engine, [f"{row.name}-{seed}"], row.tokens, 1, seed)
    _step_until(engine, 1)
    return row.tokens / (time.perf_counter() - started)


def _generate(engine: Engine, row: Row, label: str, context: int, steps: int) -> float:
    """Tokens a second of all sequences over `steps` steps, from when each of them has given a token."""
    names = [f"{row.name}-{label}-{index}" for index in range(row.sequences)]
    _submit(engine, names, context, steps + _SPARE_TOKENS, seed=100 if label == "warm" else 200)
    _step_until(engine, row.sequences)
    started = time.perf_counter()
    tokens = sum(len(output.token_ids) for _ in range(steps) for output in engine.step())
    took = time.perf_counter() - started
    for name in names:
        engine.abort(name)
    engine.step()
    return tokens / took


def _submit(engine: Engine, names: list[str], prompt: int, answer: int, seed: int) -> None:
    sampling = SamplingParams(max_tokens=answer, temperature=0.0)
    for index, name in enumerate(names):
        ids = np.random.default_rng(seed * 1000 + index).integers(0, engine.info.vocab_size, prompt).tolist()
        engine.submit(GenerateRequest(id=name, prompt_ids=ids, sampling=sampling))


def _step_until(engine: Engine, answers: int) -> None:
    """Step until this many different requests have given a token. Raises ValueError when one was refused."""
    seen: set[str] = set()
    while len(seen) < answers:
        for output in engine.step():
            if output.error is not None:
                raise ValueError(output.error)
            seen.add(output.request_id)


if __name__ == "__main__":
    sys.exit(main())
