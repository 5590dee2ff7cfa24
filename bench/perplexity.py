"""Perplexity of a model on a fixed text, with weights as stored, bf16 and fp32, and with inputs rounded to 8 bits.

Prints a table; not a speed benchmark.

python bench/perplexity.py [--model smollm2] [--kernels native|torch]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from forebay.core.activations import Activations
from forebay.kernels import PAGE_TOKENS, StepBatch, load_kernels
from forebay.models import Model, load_model, resolve
from forebay.models.loader import Quantize
from forebay.recipe import Recipe

TEXT = Path(__file__).with_name("data") / "plain_english.txt"
CHUNK = 256
CASES: tuple[tuple[str, torch.dtype, Quantize, Activations], ...] = (
    ("fp32, dequantised", torch.float32, "none", "fp32"),
    ("bf16, dequantised", torch.bfloat16, "none", "fp32"),
    ("bf16, bf16 inputs", torch.bfloat16, "none", "bf16"),
    ("as stored (auto)", torch.bfloat16, "auto", "fp32"),
    ("auto, int8 inputs", torch.bfloat16, "auto", "int8"),
    ("rest to int8", torch.bfloat16, "int8", "fp32"),
    ("int8, int8 inputs", torch.bfloat16, "int8", "int8"),
    ("rest to int4", torch.bfloat16, "int4", "fp32"),
    ("int4, int8 inputs", torch.bfloat16, "int4", "int8"),
)


def steps(count: int) -> Iterator[tuple[int, StepBatch]]:
    """Chunks of one sequence of `count` tokens: where each begins, and its batch."""
    table = torch.arange(-(-count // PAGE_TOKENS), dtype=torch.int32)[None]
    for start in range(0, count, CHUNK):
        end = min(start + CHUNK, count)
        positions = torch.arange(start, end, dtype=torch.int32)
        ends = torch.tensor([0, end - start], dtype=torch.int32)
        yield start, StepBatch(positions, ends, torch.tensor([end], dtype=torch.int32), table, positions.clone())


def perplexity(model: Model, ids: Tensor) -> float:
    """exp of the mean loss over all tokens but the first, ids int32 [n]; KV is kept in fp32."""
    layout = model.layout(torch.float32)
    pages = layout.allocate(-(-len(ids) // PAGE_TOKENS))
    total = 0.0
    for start, batch in steps(len(ids) - 1):
        end = start + len(batch.positions)
        logits = model.logits(model.forward(ids[start:end].contiguous(), batch, pages, layout))
        total += float(functional.cross_entropy(logits, ids[start + 1 : end + 1].long(), reduction="sum"))
    return float(torch.tensor(total / (len(ids) - 1)).exp())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--kernels", choices=("native", "torch"), default="native")
    options = parser.parse_args()
    source = resolve(options.model)
    ids = torch.tensor(Recipe.load(source.path, source.kind).plain_ids(TEXT.read_text("utf-8")), dtype=torch.int32)
    print(f"{source.name}, {options.kernels} kernels: perplexity over {len(ids)} tokens of {TEXT.name}")
    first: float | None = None
    for name, dtype, quantize, activations in CASES:
        kernels = load_kernels(options.kernels, activations)
        model = load_model(source, kernels, dtype, quantize=quantize)
        value = perplexity(model, ids)
        first = first or value
        print(f"{name:20} {value:9.4f} {value / first - 1:+8.3%}   {model.weight_bytes / 1e6:7.1f} MB", flush=True)


if __name__ == "__main__":
    main()
