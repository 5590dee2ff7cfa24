"""Reads tensors from a GGUF file, plain or still quantised, and undoes the row order of llama.cpp's rotary kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from forebay.core.gguf import GgufFile
from forebay.kernels import QuantisedMatrix
from forebay.models.config import ModelConfig
from forebay.models.dequant import dequantize_rows
from forebay.models.fingerprint import gguf_identity
from forebay.models.quantised_blocks import STORED_BITS, unpack_rows
from forebay.models.tensors import Part, gguf_name

_ROTARY = {Part.Q, Part.K, Part.Q_BIAS, Part.K_BIAS}


class GgufWeights:
    """A `WeightReader` of an opened GGUF file."""

    def __init__(self, file: GgufFile, config: ModelConfig) -> None:
        self._file = file
        self._head_dim = config.head_dim
        self._interleaved = config.architecture == "llama"

    def identity(self) -> bytes:
        """See `WeightReader`."""
        return gguf_identity(self._file)

    def read_into(self, part: Part, layer: int | None, out: Tensor) -> None:
        """See `WeightReader`."""
        name = gguf_name(part, layer)
        raw = self._rows(part, name)
        dequantize_rows(raw, self._file.tensors[name].type, out.view(raw.shape[0], -1))
        self._file.release(name)

    def stored_bits(self, part: Part, layer: int | None) -> int | None:
        """See `WeightReader`."""
        return STORED_BITS.get(self._file.tensors[gguf_name(part, layer)].type.name)

    def read_quantised(self, part: Part, layer: int | None) -> QuantisedMatrix:
        """See `WeightReader`."""
        name = gguf_name(part, layer)
        matrix = unpack_rows(self._rows(part, name), self._file.tensors[name].type)
        self._file.release(name)
        return matrix

    def _rows(self, part: Part, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes [rows, bytes a row], rows in the order that the kernels expect."""
        tensor = self._file.tensors[name]
        # A vector is a column of one-value rows, so that biases can be reordered as matrices are.
        rows = tensor.shape[0] if len(tensor.shape) == 2 or part in _ROTARY else 1
        raw = self._file.tensor_bytes(name).reshape(rows, -1)
        if self._interleaved and part in _ROTARY:
            raw = raw[_half_split_order(rows, self._head_dim)]
        return raw


def _half_split_order(rows: int, head_dim: int) -> NDArray[np.intp]:
    """For each row of the half-split order (pairs d, d + D/2) its place in the interleaved one (pairs 2d, 2d + 1)."""
    return np.arange(rows).reshape(-1, head_dim // 2, 2).swapaxes(1, 2).reshape(-1)
