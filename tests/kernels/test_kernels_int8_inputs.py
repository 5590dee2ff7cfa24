"""Products of quantised weights with inputs rounded to 8 bits: exact integers, torch's rounding, one result per row."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.kernel_cases import ints, random
from tests.kernels.test_kernels_quantised import KINDS, quantised

from forebay.kernels import QuantisedMatrix
from forebay.kernels.native import NativeKernels
from forebay.kernels.quantised import rounded_inputs
from forebay.kernels.torch_backend import TorchKernels

quick = settings(max_examples=30, deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def rounding(library: Path) -> NativeKernels:
    """The native backend that rounds inputs; `library` skips where there is none."""
    return NativeKernels(library, threads=2, activations="int8")


@pytest.fixture(scope="module")
def oracle() -> TorchKernels:
    return TorchKernels("int8")


@quick
@given(
    rows=st.integers(1, 80),
    outputs=st.integers(1, 150),
    inputs=st.sampled_from([32, 96, 576, 1536]),
    kind=st.sampled_from(KINDS),
    size=st.sampled_from([1e-20, 1e-3, 1.0, 1e10]),
    with_bias=st.booleans(),
    with_residual=st.booleans(),
)
def test_linear(
    rounding: NativeKernels,
    oracle: TorchKernels,
    rows: int,
    outputs: int,
    inputs: int,
    kind: str,
    size: float,
    with_bias: bool,
    with_residual: bool,
) -> None:
    matrix, x = quantised(kind, outputs, inputs), random(rows, inputs, seed=1) * size
    bias = random(outputs, seed=2) * size if with_bias else None
    residual = random(rows, outputs, seed=3) * size if with_residual else None
    packed = rounding.pack_quantised(matrix, torch.bfloat16)
    together = rounding.linear(x, packed, bias, residual)
    expected = oracle.linear(x, oracle.pack_quantised(matrix, torch.float32), bias, residual)
    torch.testing.assert_close(together, expected, atol=2e-5 * size, rtol=2e-5)
    for row in range(rows):
        alone = rounding.linear(x[row : row + 1], packed, bias, None if residual is None else residual[row : row + 1])
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 3])
def test_linear_in_one_call_or_in_pieces(rounding: NativeKernels, library: Path, kind: str, threads: int) -> None:
    """More rows than are rounded at once."""
    weight, x = rounding.pack_quantised(quantised(kind, 320, 576), torch.bfloat16), random(1100, 576, seed=1)
    together = rounding.linear(x, weight)
    other = NativeKernels(library, threads=threads, activations="int8")
    for size in (3, 5, 64, 67, 512):
        parts = [other.linear(x[start : start + size], weight) for start in range(0, 1100, size)]
        assert torch.equal(torch.cat(parts), together)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("weight", [0, 15])
@pytest.mark.parametrize("rows", [1, 4, 7])
def test_the_largest_sums_of_4_bits_are_exact(rounding: NativeKernels, rows: int, weight: int, sign: int) -> None:
    values = torch.full((20, 64), weight, dtype=torch.uint8)
    ones, none = torch.ones((20, 2), dtype=torch.float16), torch.zeros((20, 2), dtype=torch.float16)
    packed = rounding.pack_quantised(QuantisedMatrix(values, ones, none), torch.float32)
    x = torch.full((rows, 64), 127.0 * sign)
    assert torch.equal(rounding.linear(x, packed), torch.full((rows, 20), 127.0 * sign * weight * 64))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("weight", [-128, 127])
@pytest.mark.parametrize("rows", [1, 4, 7])
def test_the_largest_sums_of_8_bits_are_exact(rounding: NativeKernels, rows: int, weight: int, sign: int) -> None:
    values, ones = torch.full((20, 64), weight, dtype=torch.int8), torch.ones((20, 2), dtype=torch.float16)
    packed = rounding.pack_quantised(QuantisedMatrix(values, ones, None), torch.float32)
    x = torch.full((rows, 64), 127.0 * sign)
    assert torch.equal(rounding.linear(x, packed), torch.full((rows, 20), 127.0 * sign * weight * 64))


@pytest.mark.parametrize("kind", KINDS)
def test_every_input_meets_its_own_weight(rounding: NativeKernels, kind: str) -> None:
    """Rows with one input each read the matrix out, whatever order the values have in memory."""
    matrix = quantised(kind, 40, 96)
    read = rounding.linear(torch.eye(96) * 127, rounding.pack_quantised(matrix, torch.float32)) / 127
    torch.testing.assert_close(read.T, matrix.dequantised(torch.float32), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_visible_in_its_row(
    rounding: NativeKernels, oracle: TorchKernels, broken: float
) -> None:
    matrix, x = quantised("int4-fp16", 24, 64), random(5, 64)
    x[2, 40] = broken
    for kernels in (rounding, oracle):
        out = kernels.linear(x, kernels.pack_quantised(matrix, torch.float32))
        assert out[2].isnan().all()
        assert out[[0, 1, 3, 4]].isfinite().all()


def test_plain_weights_and_the_embedding_are_as_ever(native: NativeKernels, rounding: NativeKernels) -> None:
    x, plain, matrix = random(9, 64), random(40, 64, seed=1), quantised("int8", 40, 64)
    outs = [kernels.linear(x, kernels.pack(plain, torch.float32)) for kernels in (native, rounding)]
    assert torch.equal(*outs)
    ids = ints([3, 39])
    rows = [kernels.embed(ids, kernels.pack_quantised(matrix, torch.float32)) for kernels in (native, rounding)]
    assert torch.equal(*rows)


@quick
@given(rows=st.integers(1, 5), groups=st.integers(1, 4), size=st.floats(1e-30, 1e30), seed=st.integers(0, 99))
def test_rounding_errs_by_half_a_level_at_most(rows: int, groups: int, size: float, seed: int) -> None:
    x = random(rows, groups * 32, seed=seed) * size
    level = x.view(rows, groups, 32).abs().amax(-1) / 127
    error = (rounded_inputs(x) - x).abs().view(rows, groups, 32).amax(-1)
    assert (error <= level * 0.5001).all()
    assert torch.equal(rounded_inputs(-x), -rounded_inputs(x))


def test_zeros_stay_zeros(rounding: NativeKernels) -> None:
    assert torch.equal(rounded_inputs(torch.zeros(2, 64)), torch.zeros(2, 64))
    packed = rounding.pack_quantised(quantised("int4-fp16", 24, 64), torch.float32)
    assert torch.equal(rounding.linear(torch.zeros(2, 64), packed), torch.zeros(2, 24))


@pytest.mark.parametrize("size", [1e-45, 1e-41, 1e-37])
def test_what_is_almost_nothing_becomes_nothing(rounding: NativeKernels, oracle: TorchKernels, size: float) -> None:
    matrix, x = quantised("int4-fp16", 24, 64), torch.ones(3, 64) * size
    for kernels in (rounding, oracle):
        assert torch.equal(kernels.linear(x, kernels.pack_quantised(matrix, torch.float32)), torch.zeros(3, 24))
