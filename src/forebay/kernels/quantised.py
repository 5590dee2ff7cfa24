"""A quantised matrix as plain tensors, between the model files and the backends. It quantises; it does not multiply.

Backends repack it: the native one keeps it at 4 or 8 bits, the torch one stores what `dequantised` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 32
"""Consecutive inputs of an output that share a scale (and an offset)."""
_PIECE_VALUES = 1 << 20
_LEAST = 1e-36
"""127 over it is still finite in fp32."""
_SCALE_TYPES = (torch.float16, torch.float32)


@dataclass(frozen=True, slots=True)
class QuantisedMatrix:
    """A matrix [N, K] of weights value * scale + offset (4 bits) or value * scale (8 bits)."""

    values: Tensor
    """[N, K]: uint8 from 0 to 15, or int8."""
    scales: Tensor
    """[N, K / 32], fp16 or fp32; with int8 values fp16."""
    offsets: Tensor | None
    """As `scales`; None with int8 values."""

    def __post_init__(self) -> None:
        """Raises ValueError for what no backend can use: wrong types or shapes, or K that is no multiple of 32."""
        outputs, inputs = self.values.shape
        if inputs % GROUP:
            raise ValueError(f"a quantised matrix has a multiple of {GROUP} inputs, not {inputs}")
        if self.bits == 4 and self.values.dtype is not torch.uint8:
            raise ValueError(f"4-bit values come as uint8, not {self.values.dtype}")
        if self.bits == 8 and (self.values.dtype is not torch.int8 or self.scales.dtype is not torch.float16):
            raise ValueError(
                f"8-bit values come as int8 with fp16 scales, not {self.values.dtype}, {self.scales.dtype}"
            )
        for numbers in (self.scales, self.scales if self.offsets is None else self.offsets):
            if numbers.shape != (outputs, inputs // GROUP) or numbers.dtype not in _SCALE_TYPES:
                raise ValueError(f"scales of {outputs} x {inputs} values can't be {numbers.dtype} {numbers.shape}")
            if numbers.dtype is not self.scales.dtype:
                raise ValueError("scales and offsets are of the same type")

    @property
    def bits(self) -> int:
        """4 or 8."""
        return 8 if self.offsets is None else 4

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        """[N, K]: each weight computed in fp32, then rounded to `dtype`."""
        out = torch.empty(self.values.shape, dtype=dtype)
        step = max(1, _PIECE_VALUES // self.values.shape[1])
        for start in range(0, len(out), step):
            rows = slice(start, start + step)
            grouped = _grouped(self.values[rows]) * self.scales[rows, :, None].float()
            if self.offsets is not None:
                grouped += self.offsets[rows, :, None].float()
            out[rows] = grouped.flatten(1)
        return out


def below_each_other(parts: Sequence[QuantisedMatrix]) -> QuantisedMatrix:
    """One matrix of the parts' rows; all have as many inputs and bits. Scales become fp32 if those of any part are."""
    if len(parts) == 1:
        return parts[0]
    scale_type = torch.float32 if any(part.scales.dtype is torch.float32 for part in parts) else torch.float16
    offsets = [part.offsets.to(scale_type) for part in parts if part.offsets is not None]
    return QuantisedMatrix(
        torch.cat([part.values for part in parts]),
        torch.cat([part.scales.to(scale_type) for part in parts]),
        torch.cat(offsets) if offsets else None,
    )


def quantise(matrix: Tensor, bits: int) -> QuantisedMatrix:
    """Quantise float weights [N, K] by groups of 32 inputs, rounding to nearest.

    4 bits: 16 levels from a group's least to its largest weight. 8 bits: 255 levels, symmetric about 0. Raises
    ValueError for other numbers of bits, for K that is no multiple of 32, and for weights beyond fp16.
    """
    if bits not in (4, 8):
        raise ValueError(f"weights are quantised to 4 or 8 bits, not {bits}")
    outputs, inputs = matrix.shape
    if inputs % GROUP:
        raise ValueError(f"a quantised matrix has a multiple of {GROUP} inputs, not {inputs}")
    values = torch.empty((outputs, inputs), dtype=torch.uint8 if bits == 4 else torch.int8)
    scales = torch.empty((outputs, inputs // GROUP), dtype=torch.float16)
    offsets = torch.empty_like(scales) if bits == 4 else None
    step = max(1, _PIECE_VALUES // inputs)
    for start in range(0, outputs, step):
        rows = slice(start, start + step)
        grouped = _grouped(matrix[rows].float())
        if offsets is None:
            values[rows], scales[rows] = _symmetric(grouped)
        else:
            values[rows], scales[rows], offsets[rows] = _between_least_and_largest(grouped)
    if not (torch.isfinite(scales).all() and (offsets is None or torch.isfinite(offsets).all())):
        raise ValueError("the matrix has weights that are not finite, or too large to quantise")
    return QuantisedMatrix(values, scales, offsets)


def rounded_inputs(x: Tensor) -> Tensor:
    """What is left of fp32 inputs [T, K] of a product when each group of 32 is rounded to 8 bits: integers from -127 to
    127, halves to even, times a 127th of the largest magnitude. A group that is not finite becomes NaN, one without
    anything above 1e-36 becomes 0.
    """
    grouped = _grouped(x)
    most = grouped.abs().amax(-1, keepdim=True)
    # A number over a tensor would be the rounded reciprocal times the number.
    factors = torch.where(most > _LEAST, torch.full_like(most, 127.0) / most, 0.0)
    scales = torch.where(torch.isfinite(most), most / 127, torch.nan)
    return ((grouped * factors).round() * scales).flatten(1)


def _grouped(rows: Tensor) -> Tensor:
    """[n, K] → [n, K / 32, 32]."""
    return rows.reshape(len(rows), -1, GROUP)


def _symmetric(grouped: Tensor) -> tuple[Tensor, Tensor]:
    """fp32 [n, groups, 32] → values [n, K] and scales."""
    scales = (grouped.abs().amax(-1) / 127).half()
    return _rounded(grouped, scales, -127, 127), scales


def _between_least_and_largest(grouped: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """fp32 [n, groups, 32] → values [n, K], scales and offsets."""
    least, largest = grouped.aminmax(dim=-1)
    scales, offsets = ((largest - least) / 15).half(), least.half()
    return _rounded(grouped - offsets[..., None].float(), scales, 0, 15), scales, offsets


def _rounded(grouped: Tensor, scales: Tensor, low: int, high: int) -> Tensor:
    divisors = torch.where(scales == 0, 1.0, scales.float())
    return (grouped / divisors[..., None]).round().clamp(low, high).flatten(1)
