"""Writes tiny models as GGUF with the `gguf` package, and sets the oracle to the very numbers that the file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray
from transformers import PreTrainedModel

from forebay.models.tensors import GGUF_NAMES, Part

RANDOM_BLOCKS = {"Q4_K": (144, (0, 2)), "Q5_K": (176, (0, 2)), "Q6_K": (210, (208,))}
"""Types that the package can't quantise to: bytes a block of 256, and where its f16 scales are."""


def write(
    model: PreTrainedModel,
    path: Path,
    kind: str = "F32",
    extra: dict[str, Any] | None = None,
    others: dict[str, str] | None = None,
) -> None:
    """Write `model` with matrices of type `kind`, and set the model's own to what dequantising them gives.

    Matrices whose names contain a key of `others` have its type instead.
    `extra` adds metadata under the architecture's prefix, and vectors (numpy arrays) as tensors.
    """
    config: Any = model.config
    architecture = "llama" if config.model_type == "mistral" else config.model_type
    writer = GGUFWriter(path, architecture)
    _add_sizes(writer, config)
    for key, value in (extra or {}).items():
        if isinstance(value, np.ndarray):
            writer.add_tensor(key, value)
        else:
            writer.add_key_value(f"{architecture}.{key}", value, gguf.GGUFValueType.get_type(value))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            its_kind = next((other for key, other in (others or {}).items() if key in name), kind)
            _add_matrix(writer, name, parameter, its_kind, _heads_to_interleave(name, config))
        else:
            heads = _heads_to_interleave(name, config)
            writer.add_tensor(_gguf_name(name), _interleave(parameter.detach().numpy(), heads))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_sizes(writer: GGUFWriter, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    head_dim = getattr(config, "head_dim", None)
    if head_dim:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)


def _add_matrix(writer: GGUFWriter, name: str, parameter: torch.nn.Parameter, kind: str, heads: int) -> None:
    number = GGMLQuantizationType[kind]
    raw = quantize(parameter.detach().numpy(), kind)
    plain = gguf.quants.dequantize(raw, number).reshape(parameter.shape)
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.array(plain)))
    writer.add_tensor(_gguf_name(name), _interleave(raw, heads), raw_dtype=number)


def quantize(values: NDArray[np.float32], kind: str) -> NDArray[Any]:
    """A matrix as rows of raw blocks of `kind`; random ones for types that the package can't quantise to."""
    if kind not in RANDOM_BLOCKS:
        quantized: NDArray[Any] = gguf.quants.quantize(values, GGMLQuantizationType[kind])
        return quantized
    size, scales_at = RANDOM_BLOCKS[kind]
    rng = np.random.default_rng(values.size)
    blocks = rng.integers(0, 256, (values.size // 256, size), dtype=np.uint8)
    for at in scales_at:
        scales = rng.uniform(-1e-4, 1e-4, (len(blocks), 1)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8)
    return blocks.reshape(values.shape[0], -1)


def _heads_to_interleave(name: str, config: Any) -> int:
    """How many heads a tensor has whose rows llama.cpp's converter reorders for its rotary kernel; 0: none."""
    if config.model_type not in {"llama", "mistral"}:
        return 0
    heads: dict[str, int] = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    return heads.get(name.split(".")[-2], 0)


def _interleave(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    if not heads:
        return rows
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def _gguf_name(name: str) -> str:
    if not name.startswith("model.layers."):
        return GGUF_NAMES[Part(name)]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{GGUF_NAMES[Part(rest)]}"
