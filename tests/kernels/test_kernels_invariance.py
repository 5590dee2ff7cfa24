"""The native backend gives a token the same bits whatever else is computed with it, and with any number of threads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.kernel_cases import Sequences, angles, random
from torch import Tensor

from forebay.kernels.native import NativeKernels

quick = settings(max_examples=25, deadline=None, derandomize=True)
HEADS, KV_HEADS, DIM, LENGTH = 6, 2, 64, 300


@quick
@given(
    rows=st.integers(1, 60),
    outputs=st.integers(1, 120),
    inputs=st.sampled_from([1, 63, 576, 1536]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32]),
    rounded=st.booleans(),
)
def test_linear_by_rows(
    native: NativeKernels,
    rounding_bf16: NativeKernels,
    rows: int,
    outputs: int,
    inputs: int,
    dtype: torch.dtype,
    rounded: bool,
) -> None:
    kernels = rounding_bf16 if rounded else native
    weight = kernels.pack(random(outputs, inputs), dtype)
    x, residual, bias = random(rows, inputs, seed=1), random(rows, outputs, seed=2), random(outputs, seed=3)
    together = kernels.linear(x, weight, bias, residual)
    for row in range(rows):
        alone = kernels.linear(x[row : row + 1], weight, bias, residual[row : row + 1])
        assert torch.equal(alone[0], together[row])


def test_linear_in_one_call_or_in_pieces(native: NativeKernels) -> None:
    weight, x = native.pack(random(320, 576), torch.bfloat16), random(700, 576, seed=1)
    together = native.linear(x, weight)
    for size in (2, 5, 8, 13, 256):
        parts = [native.linear(x[start : start + size], weight) for start in range(0, 700, size)]
        assert torch.equal(torch.cat(parts), together)


def test_row_operations_by_rows(native: NativeKernels) -> None:
    x, weight = random(90, 1154), random(1154, seed=1)
    normed, gated = native.rms_norm(x, weight, 1e-5), native.silu_mul(x)
    for row in range(90):
        assert torch.equal(native.rms_norm(x[row : row + 1], weight, 1e-5)[0], normed[row])
        assert torch.equal(native.silu_mul(x[row : row + 1])[0], gated[row])


def attend(
    native: NativeKernels, steps: list[dict[int, int]], dtype: torch.dtype, window: int | None, dim: int = DIM
) -> Tensor:
    """Attention output of sequence 0 [LENGTH, H * D], computed in `steps`; others are computed beside it."""
    sequences = Sequences(3, KV_HEADS, dim, dtype)
    source = [random(LENGTH, (HEADS + 2 * KV_HEADS) * dim, seed=s) for s in range(3)]
    outputs = []
    for counts in steps:
        begins = [sequences.lengths[s] for s in counts]
        batch = sequences.step(counts)
        parts = [source[s][begin : begin + counts[s]] for s, begin in zip(counts, begins, strict=True)]
        qkv = torch.cat(parts)
        native.rope_and_store(qkv, angles(512, dim), batch, sequences.pages, 0, sequences.layout)
        out = native.attention(qkv, batch, sequences.pages, 0, sequences.layout, dim**-0.5, window)
        if 0 in counts:
            row = list(counts).index(0)
            outputs.append(out[int(batch.row_starts[row]) : int(batch.row_starts[row + 1])])
    return torch.cat(outputs)


@st.composite
def splits(draw: st.DrawFn) -> list[dict[int, int]]:
    """Steps that compute sequence 0 whole, in random chunks, with random company before or after it in the batch."""
    steps: list[dict[int, int]] = []
    left = [LENGTH] * 3
    while left[0]:
        counts: dict[int, int] = {}
        for sequence in draw(st.permutations([0, 1, 2])):
            count = min(left[sequence], draw(st.sampled_from([1, 2, 7, 16, 33, 130, 256])))
            if count and (sequence == 0 or draw(st.booleans())):
                counts[sequence] = count
                left[sequence] -= count
        steps.append(counts)
        if len(steps) == 12:
            steps.append({0: left[0]} if left[0] else {1: 0})
            break
    return steps


@quick
@given(
    steps=splits(),
    dtype=st.sampled_from([torch.bfloat16, torch.float32]),
    window=st.sampled_from([None, 5, 200]),
    dim=st.sampled_from([64, 72]),
    rounded=st.booleans(),
)
def test_attention_by_chunks(
    native: NativeKernels,
    rounding_bf16: NativeKernels,
    steps: list[dict[int, int]],
    dtype: torch.dtype,
    window: int | None,
    dim: int,
    rounded: bool,
) -> None:
    kernels = rounding_bf16 if rounded else native
    steps = [counts for counts in steps if any(counts.values())]
    assert torch.equal(attend(kernels, steps, dtype, window, dim), attend(kernels, [{0: LENGTH}], dtype, window, dim))


@pytest.mark.parametrize("window", [None, 100])
def test_decoding_is_prefilling_one_token_at_a_time(
    native: NativeKernels, rounding_bf16: NativeKernels, window: int | None
) -> None:
    one_by_one = [{0: 1} for _ in range(LENGTH)]
    for kernels in (native, rounding_bf16):
        whole = attend(kernels, [{0: LENGTH}], torch.bfloat16, window)
        assert torch.equal(attend(kernels, one_by_one, torch.bfloat16, window), whole)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_changes_nothing(native: NativeKernels, library: Path, threads: int) -> None:
    other = NativeKernels(library, threads=threads)
    steps = [{0: 200, 1: 20}, {0: 1}, {1: 1, 0: LENGTH - 201}]
    assert torch.equal(attend(other, steps, torch.bfloat16, None), attend(native, steps, torch.bfloat16, None))
    x, matrix = random(50, 576), random(200, 576, seed=1)
    mine, theirs = (k.linear(x, k.pack(matrix, torch.bfloat16)) for k in (native, other))
    assert torch.equal(mine, theirs)
