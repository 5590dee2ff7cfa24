"""Checks a GGUF file's tensor table against what the model needs. Reads no data, and no torch."""

from __future__ import annotations

from typing import Final

from forebay.core.gguf import GgufFile
from forebay.models.config import ModelConfig
from forebay.models.gguf_config import ROPE_TENSORS
from forebay.models.tensors import check_tensors, gguf_name, part_shapes

READABLE_TYPES: Final = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K")
"""The ggml types that `dequant` decodes."""


def check_gguf_tensors(file: GgufFile, config: ModelConfig) -> None:
    """Raises UnsupportedModelError naming the tensors that are missing, unexpected, misshapen or of unreadable type."""
    check_tensors(
        {gguf_name(part, layer): shape for (part, layer), shape in part_shapes(config).items()},
        {name: tensor.shape for name, tensor in file.tensors.items()},
        {name: tensor.type.name for name, tensor in file.tensors.items()},
        READABLE_TYPES,
        ROPE_TENSORS,
    )
