"""Reads tensors from a GGUF file: dequantises them, and undoes the row order that llama.cpp's rotary kernel wants."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from forebay.core.gguf import GgufFile
from forebay.models.config import ModelConfig
from forebay.models.dequant import dequantize_rows
from forebay.models.fingerprint import gguf_identity
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
        tensor = self._file.tensors[name]
        # A vector is a column of one-value rows, so that biases can be reordered as matrices are.
        rows = tensor.shape[0] if len(tensor.shape) == 2 or part in _ROTARY else 1
        raw = self._file.tensor_bytes(name).reshape(rows, -1)
        if self._interleaved and part in _ROTARY:
            raw = raw[_half_split_order(rows, self._head_dim)]
        dequantize_rows(raw, tensor.type, out.view(rows, -1))
        self._file.release(name)


def _half_split_order(rows: int, head_dim: int) -> NDArray[np.intp]:
    """For each row of the half-split order (pairs d, d + D/2) its place in the interleaved one (pairs 2d, 2d + 1)."""
    return np.arange(rows).reshape(-1, head_dim // 2, 2).swapaxes(1, 2).reshape(-1)
