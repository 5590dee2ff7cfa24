"""Reads tensors from the safetensors files of a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from forebay.core.ggml_types import GGML_TYPES, GgmlType
from forebay.kernels import PLAIN_KINDS, StoredRows
from forebay.models.fingerprint import hf_identity
from forebay.models.hf_tensors import hf_tensors
from forebay.models.tensors import Part, hf_name

_KINDS = {kind.name: kind for kind in GGML_TYPES.values() if kind.name in PLAIN_KINDS}
"""The formats call their types alike."""


class HfWeights:
    """A `WeightReader` of a folder. Each file is mapped only while one of its tensors is read."""

    def __init__(self, folder: Path) -> None:
        self._tensors = hf_tensors(folder)

    def identity(self) -> bytes:
        """See `WeightReader`."""
        return hf_identity(self._tensors)

    def read_into(self, part: Part, layer: int | None, out: Tensor) -> None:
        """See `WeightReader`."""
        name = hf_name(part, layer)
        with safe_open(self._tensors[name].file, framework="pt") as file:
            out.copy_(file.get_tensor(name))

    def stored_kind(self, part: Part, layer: int | None) -> GgmlType:
        """See `WeightReader`: plain numbers only."""
        return _KINDS[self._tensors[hf_name(part, layer)].type]

    @contextmanager
    def stored(self, part: Part, layer: int | None) -> Iterator[StoredRows]:
        """See `WeightReader`."""
        name = hf_name(part, layer)
        with safe_open(self._tensors[name].file, framework="pt") as file:
            # The tensor is a view of the mapped file.
            yield StoredRows(self.stored_kind(part, layer), file.get_tensor(name).view(torch.uint8).numpy())
