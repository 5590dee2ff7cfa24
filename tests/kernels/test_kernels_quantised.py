"""Quantised matrices: the native backend gives the dequantised matrix's bits in any batch; rounding is to nearest."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.kernel_cases import ints, random
from torch import Tensor

from forebay.kernels import QuantisedMatrix, quantise
from forebay.kernels.native import NativeKernels
from forebay.kernels.quantised import below_each_other
from forebay.kernels.torch_backend import TorchKernels

KINDS = ["int4-fp16", "int4-fp32", "int8"]
quick = settings(max_examples=30, deadline=None, derandomize=True)


def quantised(kind: str, outputs: int, inputs: int) -> QuantisedMatrix:
    """A random matrix. fp32 scales have seventeen bits, as those of Q4_K."""
    matrix = quantise(random(outputs, inputs) / inputs**0.5, 8 if kind == "int8" else 4)
    if kind != "int4-fp32":
        return matrix
    assert matrix.offsets is not None
    return QuantisedMatrix(matrix.values, matrix.scales.float() * 61 / 64, matrix.offsets.float() * 61 / 64)


@quick
@given(
    rows=st.integers(1, 60),
    outputs=st.integers(1, 150),
    inputs=st.sampled_from([32, 96, 576]),
    kind=st.sampled_from(KINDS),
    with_bias=st.booleans(),
    with_residual=st.booleans(),
)
def test_linear(
    native: NativeKernels,
    portable: TorchKernels,
    rows: int,
    outputs: int,
    inputs: int,
    kind: str,
    with_bias: bool,
    with_residual: bool,
) -> None:
    matrix, x = quantised(kind, outputs, inputs), random(rows, inputs, seed=1)
    bias = random(outputs, seed=2) if with_bias else None
    residual = random(rows, outputs, seed=3) if with_residual else None
    packed = native.pack_quantised(matrix, torch.bfloat16)
    together = native.linear(x, packed, bias, residual)
    plain = native.pack(matrix.dequantised(torch.float32), torch.float32)
    assert torch.equal(together, native.linear(x, plain, bias, residual))
    expected = portable.linear(x, portable.pack_quantised(matrix, torch.float32), bias, residual)
    torch.testing.assert_close(together, expected, atol=2e-5, rtol=2e-5)
    for row in range(rows):
        alone = native.linear(x[row : row + 1], packed, bias, None if residual is None else residual[row : row + 1])
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("kind", KINDS)
def test_linear_in_one_call_or_in_pieces(native: NativeKernels, kind: str) -> None:
    weight, x = native.pack_quantised(quantised(kind, 320, 576), torch.bfloat16), random(700, 576, seed=1)
    together = native.linear(x, weight)
    for size in (2, 5, 8, 13, 256):
        parts = [native.linear(x[start : start + size], weight) for start in range(0, 700, size)]
        assert torch.equal(torch.cat(parts), together)


@pytest.mark.parametrize("kind", KINDS)
def test_embed(native: NativeKernels, portable: TorchKernels, kind: str) -> None:
    matrix = quantised(kind, 75, 96)
    ids = ints([74, 0, 3, 3, 17, 16, 15, 31, 32])
    for kernels in (native, portable):
        rows = kernels.embed(ids, kernels.pack_quantised(matrix, torch.float32))
        assert torch.equal(rows, matrix.dequantised(torch.float32)[ids.long()])


def test_embed_refuses_ids_beyond_the_vocabulary(native: NativeKernels) -> None:
    weight = native.pack_quantised(quantised("int8", 40, 32), torch.float32)
    with pytest.raises(ValueError, match="40 at 1"):
        native.embed(ints([39, 40]), weight)


@pytest.mark.parametrize("scale", [2.0**-24, -(2.0**-15), 6.1e-5, -3.5, 65504.0, 0.0])
def test_scales_over_all_of_fp16(native: NativeKernels, scale: float) -> None:
    values = torch.arange(-16, 16, dtype=torch.int8).expand(8, 32)
    matrix = QuantisedMatrix(values, torch.full((8, 1), scale, dtype=torch.float16), None)
    rows = native.embed(ints([0, 7]), native.pack_quantised(matrix, torch.float32))
    assert torch.equal(rows, values[:2] * matrix.scales[0].float())


@pytest.mark.parametrize(("kind", "bits"), [("int4-fp16", 5.0), ("int4-fp32", 6.0), ("int8", 8.5)])
def test_memory_held(native: NativeKernels, kind: str, bits: float) -> None:
    assert native.pack_quantised(quantised(kind, 64, 96), torch.float32).nbytes == 64 * 96 * bits / 8


@quick
@given(outputs=st.integers(1, 9), groups=st.integers(1, 4), bits=st.sampled_from([4, 8]), size=st.floats(1e-3, 100.0))
def test_quantising_errs_by_half_a_level_at_most(outputs: int, groups: int, bits: int, size: float) -> None:
    plain = random(outputs, groups * 32) * size
    matrix = quantise(plain, bits)
    error = (matrix.dequantised(torch.float32) - plain).abs().view(outputs, groups, 32).amax(-1)
    largest = plain.abs().view(outputs, groups, 32).amax(-1)
    # Scales and offsets are rounded to fp16, which can add 16 levels times 2^-11 of a scale and 2^-11 of a weight.
    assert (error <= matrix.scales.float() * 0.51 + largest * 2.0**-10).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("value", [0.0, 0.75, -3.0])
def test_equal_weights_stay_what_they_are(bits: int, value: float) -> None:
    plain = torch.full((3, 64), value)
    torch.testing.assert_close(quantise(plain, bits).dequantised(torch.float32), plain, atol=0, rtol=2e-3)


def test_parts_below_each_other() -> None:
    parts = [quantised(kind, outputs, 64) for kind, outputs in (("int4-fp16", 3), ("int4-fp32", 5))]
    together = below_each_other(parts)
    expected = torch.cat([part.dequantised(torch.float32) for part in parts])
    assert torch.equal(together.dequantised(torch.float32), expected)


def broken(values: Tensor, scales: Tensor, offsets: Tensor | None) -> None:
    with pytest.raises(ValueError, match=r"quantised|values|scales"):
        QuantisedMatrix(values, scales, offsets)


def test_refuses_what_no_kernel_reads() -> None:
    matrix = quantised("int4-fp16", 4, 64)
    broken(matrix.values[:, :40].contiguous(), matrix.scales, matrix.offsets)
    broken(matrix.values.short(), matrix.scales, matrix.offsets)
    broken(matrix.values, matrix.scales, None)
    broken(matrix.values, matrix.scales[:, :1], matrix.offsets)
    broken(matrix.values, matrix.scales.float(), matrix.offsets)
    broken(matrix.values, matrix.scales.bfloat16(), matrix.scales.bfloat16())
    with pytest.raises(ValueError, match="multiple of 32"):
        quantise(random(4, 40), 4)
    with pytest.raises(ValueError, match="4 or 8"):
        quantise(random(4, 64), 5)
    with pytest.raises(ValueError, match="not finite, or too large"):
        quantise(random(4, 64) * 1e6, 4)
