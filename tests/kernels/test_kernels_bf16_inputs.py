"""Products of bf16 with what is rounded to it. Over random shapes they are in the tests of all kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.kernels.kernel_cases import Sequences, random
from tests.kernels.test_kernels_invariance import DIM, HEADS, KV_HEADS, LENGTH, attend

from forebay.kernels import PAGE_TOKENS
from forebay.kernels.native import NativeKernels


@pytest.mark.parametrize("threads", [1, 3])
def test_linear_in_one_call_or_in_pieces(rounding_bf16: NativeKernels, library: Path, threads: int) -> None:
    """More rows than are rounded at once."""
    weight, x = rounding_bf16.pack(random(320, 575), torch.bfloat16), random(1100, 575, seed=1)
    together = rounding_bf16.linear(x, weight)
    other = NativeKernels(library, threads=threads, activations="bf16")
    other.rounds_bf16 = True
    for size in (3, 5, 64, 67, 512):
        parts = [other.linear(x[start : start + size], weight) for start in range(0, 1100, size)]
        assert torch.equal(torch.cat(parts), together)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), 3.3961775292304957e38, 1.00390625, 1.01171875]
)
@pytest.mark.parametrize("at", [0, 30, 32])
def test_inputs_become_what_torch_makes_of_them(rounding_bf16: NativeKernels, value: float, at: int) -> None:
    """Halves to even, the largest to infinity, and no number where there was none."""
    x = torch.zeros(2, 33)
    x[1, at] = value
    made = rounding_bf16.linear(x, rounding_bf16.pack(torch.ones(5, 33), torch.bfloat16))
    expected = x.bfloat16().float().sum(dim=1, keepdim=True).expand(2, 5)
    torch.testing.assert_close(made, expected, atol=0, rtol=0, equal_nan=True)


def test_rounds_nothing_but_for_bf16_weights(rounding_bf16: NativeKernels, native: NativeKernels) -> None:
    matrix, x = random(40, 64), random(3, 64, seed=1)
    assert torch.equal(
        rounding_bf16.linear(x, rounding_bf16.pack(matrix, torch.float32)),
        native.linear(x, native.pack(matrix, torch.float32)),
    )


def test_asks_for_no_rounding_by_itself(library: Path) -> None:
    assert not NativeKernels(library, threads=2, activations="fp32").rounds_bf16


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("dim", [64, 72, 128])
def test_attention_errs_by_what_is_rounded(
    rounding_bf16: NativeKernels, native: NativeKernels, window: int | None, dim: int
) -> None:
    steps = [{0: 150, 1: 20}, {0: 1}, {1: 1, 0: LENGTH - 151}]
    rounded, exact = (attend(kernels, steps, torch.bfloat16, window, dim) for kernels in (rounding_bf16, native))
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, atol=0.02, rtol=0)  # values are of size 1, a rounding 2^-9 of that
    assert float((rounded - exact).square().mean().sqrt()) < 1e-3


def test_attention_to_one_value_is_that_value(rounding_bf16: NativeKernels) -> None:
    """Weights add up to what they are divided by, though they are rounded."""
    sequences = Sequences(1, KV_HEADS, DIM, torch.bfloat16)
    batch = sequences.step({0: LENGTH})
    sequences.pages[:] = 1.5
    qkv = random(LENGTH, (HEADS + 2 * KV_HEADS) * DIM)
    out = rounding_bf16.attention(qkv, batch, sequences.pages, 0, sequences.layout, DIM**-0.5, None)
    torch.testing.assert_close(out, torch.full_like(out, 1.5), atol=1e-6, rtol=0)


def test_what_was_never_written_is_not_attended_to(rounding_bf16: NativeKernels) -> None:
    """The odd one out of a pair may stand beside memory that holds no number."""
    for length in range(1, 2 * PAGE_TOKENS):
        assert attend(rounding_bf16, [{0: length}, {0: LENGTH - length}], torch.bfloat16, None).isfinite().all()


def test_attention_to_fp32_rounds_nothing(rounding_bf16: NativeKernels, native: NativeKernels) -> None:
    made = (attend(kernels, [{0: LENGTH}], torch.float32, None) for kernels in (rounding_bf16, native))
    assert torch.equal(*made)
