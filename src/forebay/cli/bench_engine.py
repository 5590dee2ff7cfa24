"""Carries out `forebay bench engine`: progress and report. The measuring is in `forebay.bench.engine`."""

from __future__ import annotations

import json
from typing import Any

from forebay.bench.engine import EnginePlan, engine_options, measure_engine
from forebay.cli import console
from forebay.cli.bench import EngineBenchOptions
from forebay.core.errors import ConfigError


def run(model: str, options: EngineBenchOptions) -> int:
    """Measure and print. Raises ForebayError when the model can't be loaded or is too small for what is asked."""
    plan = EnginePlan(options.prefill, options.rows, options.context, options.repeat)
    base: dict[str, Any] = {"dtype": options.dtype, "quantize": options.quantize, "activations": options.activations}
    base |= {"threads": options.threads, "kernels": options.kernels}
    try:
        with console.stages("starting the engine") as report:
            figures = measure_engine(engine_options(model, plan, base), plan, report)
    except ValueError as error:
        raise ConfigError(f"This can't be measured: {error}") from error
    console.say(json.dumps(figures, indent=2) if options.json else table(figures))
    return 0


def table(figures: dict[str, Any]) -> str:
    """The figures for people."""
    limits = figures["limits"]
    lines = [
        f"{figures['model']}, {figures['dtype']}, quantize {figures['quantize']}, "
        f"activations {figures['activations']}, kernels {figures['kernels']}, {figures['threads']} threads",
        f"{figures['cpu']}: matrix products {limits['gemm_gflops']:g} GFLOP/s, memory {limits['read_gbps']:g} GB/s",
        "",
        "prefill           tokens/s   of the matrix limit   with attention's work",
    ]
    for length, rate in figures["prefill"].items():
        lines.append(
            f"  {length:>6} tokens  {rate:>9.1f}   {figures['mfu_prefill_by_length'][length]:>6.0%}"
            f"                {figures['mfu_prefill_with_attention'][length]:>6.0%}"
        )
    lines += ["", f"decode, from {figures['context']} tokens on", "                  tokens/s   of the memory limit"]
    for rows, rate in figures["decode"].items():
        lines.append(f"  {rows:>4} sequences {rate:>9.1f}   {figures['read_share_decode'][rows]:>6.0%}")
    lines += ["", f"Medians of {figures['repeat']} runs."]
    return "\n".join(lines)
