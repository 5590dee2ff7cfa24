"""Products of bf16 weights with inputs rounded to bf16: torch's rounding, pairs in any number, one result per row."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.kernel_cases import random
from torch import Tensor

from forebay.kernels.native import NativeKernels
from forebay.kernels.torch_backend import TorchKernels

quick = settings(max_examples=30, deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def rounding(library: Path) -> NativeKernels:
    """The native backend that rounds inputs, even where that is no faster; `library` skips where there is none."""
    kernels = NativeKernels(library, threads=2, activations="bf16")
    kernels.rounds_bf16 = True
    return kernels


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)


@quick
@given(
    rows=st.integers(1, 80),
    outputs=st.integers(1, 150),
    inputs=st.integers(1, 130),
    with_bias=st.booleans(),
    with_residual=st.booleans(),
)
def test_linear(
    rounding: NativeKernels,
    portable: TorchKernels,
    rows: int,
    outputs: int,
    inputs: int,
    with_bias: bool,
    with_residual: bool,
) -> None:
    matrix, x = random(outputs, inputs) / inputs**0.5, random(rows, inputs, seed=1)
    bias = random(outputs, seed=2) if with_bias else None
    residual = random(rows, outputs, seed=3) if with_residual else None
    packed = rounding.pack(matrix, torch.bfloat16)
    together = rounding.linear(x, packed, bias, residual)
    close(together, portable.linear(x.bfloat16().float(), portable.pack(matrix, torch.bfloat16), bias, residual))
    for row in range(rows):
        alone = rounding.linear(x[row : row + 1], packed, bias, None if residual is None else residual[row : row + 1])
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("threads", [1, 3])
def test_linear_in_one_call_or_in_pieces(rounding: NativeKernels, library: Path, threads: int) -> None:
    """More rows than are rounded at once."""
    weight, x = rounding.pack(random(320, 575), torch.bfloat16), random(1100, 575, seed=1)
    together = rounding.linear(x, weight)
    other = NativeKernels(library, threads=threads, activations="bf16")
    other.rounds_bf16 = True
    for size in (3, 5, 64, 67, 512):
        parts = [other.linear(x[start : start + size], weight) for start in range(0, 1100, size)]
        assert torch.equal(torch.cat(parts), together)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), 3.3961775292304957e38, 1.00390625, 1.01171875]
)
@pytest.mark.parametrize("at", [0, 30, 32])
def test_inputs_become_what_torch_makes_of_them(rounding: NativeKernels, value: float, at: int) -> None:
    """Halves to even, the largest to infinity, and no number where there was none."""
    x = torch.zeros(2, 33)
    x[1, at] = value
    made = rounding.linear(x, rounding.pack(torch.ones(5, 33), torch.bfloat16))
    expected = x.bfloat16().float().sum(dim=1, keepdim=True).expand(2, 5)
    torch.testing.assert_close(made, expected, atol=0, rtol=0, equal_nan=True)


def test_rounds_nothing_but_for_bf16_weights(rounding: NativeKernels, native: NativeKernels) -> None:
    matrix, x = random(40, 64), random(3, 64, seed=1)
    assert torch.equal(
        rounding.linear(x, rounding.pack(matrix, torch.float32)), native.linear(x, native.pack(matrix, torch.float32))
    )


def test_asks_for_no_rounding_by_itself(library: Path) -> None:
    assert not NativeKernels(library, threads=2, activations="fp32").rounds_bf16
