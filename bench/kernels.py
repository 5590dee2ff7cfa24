"""Speed of the kernels on SmolLM2-135M's shapes, beside what this machine can do at most. Prints a table.

python bench/kernels.py [--kernels native|torch] [--seconds 0.3]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from forebay.kernels import PAGE_TOKENS, Kernels, KvLayout, StepBatch, load_kernels
from forebay.kernels.limits import best_seconds, measure_limits

LAYERS, HIDDEN, INNER, VOCAB = 30, 576, 1536, 49152
HEADS, KV_HEADS, DIM = 9, 3, 64
SHAPES = ((HIDDEN + 2 * KV_HEADS * DIM, HIDDEN), (HIDDEN, HIDDEN), (2 * INNER, HIDDEN), (HIDDEN, INNER))


def linear_table(kernels: Kernels, seconds: float) -> None:
    """All matrix products of one step: 4 a layer, 30 layers, and the head (on one row only for many rows)."""
    layers = [[kernels.pack(torch.randn(n, k), torch.bfloat16) for n, k in SHAPES] for _ in range(LAYERS)]
    head = kernels.pack(torch.randn(VOCAB, HIDDEN), torch.bfloat16)
    body = sum(weight.nbytes for layer in layers for weight in layer)
    print(f"{'rows':>6} {'ms':>9} {'GB/s':>8} {'GFLOP/s':>9}   (all linear layers and the head, bf16)")
    for rows in (1, 2, 4, 8, 16, 32, 128, 512, 2048):
        head_rows = rows if rows <= 32 else 1
        inputs = {k: torch.randn(rows, k) for k in (HIDDEN, INNER)}

        def step(inputs: dict[int, Tensor] = inputs, head_rows: int = head_rows) -> None:
            for layer in layers:
                for weight in layer:
                    kernels.linear(inputs[weight.shape[1]], weight)
            kernels.linear(inputs[HIDDEN][:head_rows], head)

        took = best_seconds(step, seconds)
        flops = body * rows + head.nbytes * head_rows
        print(f"{rows:6d} {took * 1e3:9.2f} {(body + head.nbytes) / took / 1e9:8.1f} {flops / took / 1e9:9.1f}")


def batch_of(rows: int, tokens: int, context: int) -> StepBatch:
    """`rows` sequences of `context` tokens, the last `tokens` of which are computed now."""
    pages = -(-context // PAGE_TOKENS)
    table = torch.arange(rows * pages, dtype=torch.int32).view(rows, pages)
    positions = torch.arange(context - tokens, context, dtype=torch.int32)
    slots = table[:, positions.long() // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
    return StepBatch(
        positions=positions.repeat(rows),
        row_starts=torch.arange(rows + 1, dtype=torch.int32) * tokens,
        context=torch.full((rows,), context, dtype=torch.int32),
        page_table=table,
        slots=slots.flatten().contiguous(),
    )


def attention_table(kernels: Kernels, seconds: float) -> None:
    """Attention and rotary embedding over 30 layers."""
    layout = KvLayout(LAYERS, KV_HEADS, DIM, torch.bfloat16)
    print(f"{'rows':>6} {'tokens':>7} {'context':>8} {'attention us':>13} {'GFLOP/s':>8} {'rope us':>8}   (one layer)")
    for rows, tokens, context in (
        (1, 1, 1024),
        (8, 1, 1024),
        (32, 1, 512),
        (1, 1, 8192),
        (1, 512, 512),
        (1, 512, 2048),
    ):
        batch = batch_of(rows, tokens, context)
        pages = layout.allocate(rows * -(-context // PAGE_TOKENS)).normal_()
        qkv = torch.randn(rows * tokens, (HEADS + 2 * KV_HEADS) * DIM)
        angles = torch.randn(context, DIM)

        def all_layers(work: Callable[[int], object]) -> float:
            return best_seconds(lambda: [work(layer) for layer in range(LAYERS)], seconds) / LAYERS

        attend = all_layers(lambda i: kernels.attention(qkv, batch, pages, i, layout, DIM**-0.5, None))  # noqa: B023
        rope = all_layers(lambda i: kernels.rope_and_store(qkv, angles, batch, pages, i, layout))  # noqa: B023
        seen = rows * sum(range(context - tokens + 1, context + 1))
        rate = 4 * seen * HEADS * DIM / attend / 1e9
        print(f"{rows:6d} {tokens:7d} {context:8d} {attend * 1e6:13.1f} {rate:8.1f} {rope * 1e6:8.1f}")


def row_table(kernels: Kernels, seconds: float) -> None:
    """The small operations, one layer's worth."""
    print(f"{'rows':>6} {'rms_norm us':>12} {'silu_mul us':>12}")
    for rows in (1, 8, 512):
        x, weight, gate_up = torch.randn(rows, HIDDEN), torch.randn(HIDDEN), torch.randn(rows, 2 * INNER)
        norm = best_seconds(lambda: kernels.rms_norm(x, weight, 1e-5), seconds / 4)  # noqa: B023
        gate = best_seconds(lambda: kernels.silu_mul(gate_up), seconds / 4)  # noqa: B023
        print(f"{rows:6d} {norm * 1e6:12.1f} {gate * 1e6:12.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", choices=("native", "torch"), default="native")
    parser.add_argument("--seconds", type=float, default=0.5, help="time for each measurement")
    options = parser.parse_args()
    kernels = load_kernels(options.kernels)
    limits = measure_limits(kernels)
    threads = torch.get_num_threads()
    print(f"{kernels.name}, {threads} threads: reads {limits.read_gbps:.1f} GB/s, {limits.gemm_gflops:.0f} GFLOP/s")
    linear_table(kernels, options.seconds)
    attention_table(kernels, options.seconds)
    row_table(kernels, options.seconds)


if __name__ == "__main__":
    main()
