"""What the engine's benchmark divides by, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from forebay.bench.engine import EnginePlan, engine_options, linear_flops, step_bytes
from forebay.engine import WorkerOptions
from forebay.models import describe, resolve


def test_linear_operations_of_a_token(tiny_llama: Path) -> None:
    config = describe(resolve(str(tiny_llama)))
    # Per layer: q 64x64, k and v 32x64 each, output 64x64, gate, up and down 96x64 each.
    assert linear_flops(config) == 2 * 2 * (64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 96 * 64)


def test_bytes_of_a_decode_step(tiny_llama: Path) -> None:
    config = describe(resolve(str(tiny_llama)))
    engine = cast("Any", SimpleNamespace(info=SimpleNamespace(weight_bytes=100_000)))
    # The untied embedding of 256 x 64 is not read; each row reads K and V of 2 layers, 2 heads of 16, per token.
    bf16 = 100_000 - 256 * 64 * 2 + 3 * 10 * 2 * 2 * 2 * 16 * 2
    assert step_bytes(engine, config, 3, 10, WorkerOptions(model="tiny")) == bf16
    fp32 = 100_000 - 256 * 64 * 4 + 3 * 10 * 2 * 2 * 2 * 16 * 4
    assert step_bytes(engine, config, 3, 10, WorkerOptions(model="tiny", dtype="fp32")) == fp32


def test_the_engine_has_room_for_the_most_rows_and_no_prefix_cache() -> None:
    options = engine_options("tiny", EnginePlan(rows=(1, 100)), {"threads": 1})
    assert (options.max_running, options.prefix_cache, options.threads) == (100, False, 1)
