"""Packs matrices into the compiled library's panels, from tensors or from a model file's own rows. No products.

What a panel is, is said in csrc/gemm.cpp and csrc/quantised_blocks.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from forebay.kernels.library import Format, Stored
from forebay.kernels.quantised import QuantisedMatrix
from forebay.kernels.stored import StoredRows, fused_shape, stored_bits

PLAIN_FORMATS: Final = {torch.float32: Format.FP32, torch.bfloat16: Format.BF16}
_INT4: Final = {torch.float16: Format.INT4_FP16, torch.float32: Format.INT4_FP32}


@dataclass(frozen=True, slots=True)
class NativeWeight:
    """A matrix [N, K] as bytes of panels."""

    panels: Tensor
    shape: tuple[int, int]
    address: int
    """Of `panels`, kept because asking a tensor costs more than reading an attribute."""
    format: Format

    @property
    def nbytes(self) -> int:
        return self.panels.numel()


class PanelPacker:
    """What packs for one loaded library. Wrong shapes or types raise ValueError."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._panel: int = library.forebay_panel()

    def pack(self, weight: Tensor, dtype: torch.dtype) -> NativeWeight:
        """See `Kernels`."""
        if weight.dim() != 2 or not weight.is_floating_point():
            raise ValueError(f"a weight is a float matrix, not {weight.dtype} {tuple(weight.shape)}")
        outputs, inputs = weight.shape
        packed = self._empty((outputs, inputs), _plain_format(dtype))
        source = weight.detach().to(dtype).contiguous()
        self._library.forebay_pack(source.data_ptr(), packed.address, outputs, inputs, packed.format)
        return packed

    def pack_quantised(self, matrix: QuantisedMatrix) -> NativeWeight:
        """See `Kernels`."""
        outputs, inputs = matrix.values.shape
        values, scales = matrix.values.contiguous(), matrix.scales.contiguous()
        offsets = None if matrix.offsets is None else matrix.offsets.contiguous()
        packed = self._empty((outputs, inputs), Format.INT8_FP16 if offsets is None else _INT4[scales.dtype])
        self._library.forebay_pack_quantised(
            values.data_ptr(),
            scales.data_ptr(),
            None if offsets is None else offsets.data_ptr(),
            packed.address,
            outputs,
            inputs,
            packed.format,
        )
        return packed

    def pack_stored(self, parts: Sequence[StoredRows], dtype: torch.dtype) -> NativeWeight:
        """See `Kernels`. On this thread alone."""
        shape, bits = fused_shape(parts), stored_bits(parts)
        if bits != 4:
            form = _plain_format(dtype) if bits is None else Format.INT8_FP16
            return self._filled(parts, shape, form)[0]
        # Whether scales are exact as fp16 shows only while packing: begin with what will hardly be done over.
        likely = Format.INT4_FP32 if any(part.kind.name == "Q4_K" for part in parts) else Format.INT4_FP16
        packed, exact = self._filled(parts, shape, likely)
        fitting = Format.INT4_FP16 if exact else Format.INT4_FP32
        if fitting is likely:
            return packed
        del packed  # before there are two
        return self._filled(parts, shape, fitting)[0]

    def _filled(self, parts: Sequence[StoredRows], shape: tuple[int, int], form: Format) -> tuple[NativeWeight, bool]:
        """The parts packed as `form`, and whether 4-bit scales are exact as fp16: else such panels are of no use."""
        packed, row, exact = self._empty(shape, form), 0, True
        for part in parts:
            addresses = part.addresses()
            kind = Stored[part.kind.name]
            exact &= bool(
                self._library.forebay_pack_stored(
                    addresses.ctypes.data, kind, packed.address, row, len(addresses), shape[1], form
                )
            )
            row += len(addresses)
        return packed, exact

    def _empty(self, shape: tuple[int, int], form: Format) -> NativeWeight:
        """A matrix whose panels are not written."""
        outputs, inputs = shape
        if form in PLAIN_FORMATS.values():
            words = inputs if form is Format.FP32 else -(-inputs // 2)
            nbytes = -(-outputs // self._panel) * self._panel * words * 4
        else:
            nbytes = self._library.forebay_quantised_bytes(outputs, inputs, form)
        panels = torch.empty(nbytes, dtype=torch.uint8)
        return NativeWeight(panels, shape, panels.data_ptr(), form)


def _plain_format(dtype: torch.dtype) -> Format:
    if dtype not in PLAIN_FORMATS:
        raise ValueError(f"weights are stored as bfloat16 or float32, not {dtype}")
    return PLAIN_FORMATS[dtype]
