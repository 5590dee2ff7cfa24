"""Reads tensors from the safetensors files of a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from forebay.kernels import QuantisedMatrix
from forebay.models.fingerprint import hf_identity
from forebay.models.hf_tensors import hf_tensors
from forebay.models.tensors import Part, hf_name


class HfWeights:
    """A `WeightReader` of a folder. Each file is mapped only while one of its tensors is copied."""

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

    def stored_bits(self, part: Part, layer: int | None) -> int | None:
        """See `WeightReader`: the files hold plain numbers only."""
        return None

    def read_quantised(self, part: Part, layer: int | None) -> QuantisedMatrix:
        """See `WeightReader`. Raises ValueError."""
        raise ValueError(f"{hf_name(part, layer)} is not stored quantised")
