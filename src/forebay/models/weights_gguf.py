"""Reads tensors from a GGUF file, decoded or as stored, and undoes the row order of llama.cpp's rotary kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from forebay.core.ggml_types import GgmlType
from forebay.core.gguf import GgufFile
from forebay.kernels import StoredRows
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
        raw, order = self._rows(part, name)
        raw = raw if order is None else raw[order]
        dequantize_rows(raw, self._file.tensors[name].type, out.view(raw.shape[0], -1))
        self._file.release(name)

    def stored_kind(self, part: Part, layer: int | None) -> GgmlType:
        """See `WeightReader`."""
        return self._file.tensors[gguf_name(part, layer)].type

    @contextmanager
    def stored(self, part: Part, layer: int | None) -> Iterator[StoredRows]:
        """See `WeightReader`."""
        name = gguf_name(part, layer)
        blocks, order = self._rows(part, name)
        try:
            yield StoredRows(self._file.tensors[name].type, blocks, order)
        finally:
            self._file.release(name)

    def _rows(self, part: Part, name: str) -> tuple[NDArray[np.uint8], NDArray[np.intp] | None]:
        """The tensor's bytes [rows, bytes a row], and the order in which the kernels expect rows, if it is another."""
        tensor = self._file.tensors[name]
        # A vector is a column of one-value rows, so that biases can be reordered as matrices are.
        rows = tensor.shape[0] if len(tensor.shape) == 2 or part in _ROTARY else 1
        raw = self._file.tensor_bytes(name).reshape(rows, -1)
        return raw, _half_split_order(rows, self._head_dim) if self._interleaved and part in _ROTARY else None


def _half_split_order(rows: int, head_dim: int) -> NDArray[np.intp]:
    """For each row of the half-split order (pairs d, d + D/2) its place in the interleaved one (pairs 2d, 2d + 1)."""
    return np.arange(rows).reshape(-1, head_dim // 2, 2).swapaxes(1, 2).reshape(-1)
