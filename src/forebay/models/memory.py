"""How much memory a model will take, and whether this machine has it, before any is taken. KV memory is not counted."""

from __future__ import annotations

import psutil

from forebay.core.errors import ConfigError
from forebay.models.config import ModelConfig

LOADERS = 2
"""Threads that read and pack matrices, so many at a time."""
_FP32_BYTES = 4


def weight_bytes(config: ModelConfig, itemsize: float) -> int:
    """Bytes that stay in use: matrices at `itemsize` bytes a weight, norms and biases in fp32."""
    return int(config.matrix_parameters * itemsize) + config.vector_parameters * _FP32_BYTES


def estimate_bytes(config: ModelConfig, itemsize: float, packing: int = 0) -> int:
    """Most bytes in use while loading: the weights, the rotary table, and for each loader `packing` bytes, what the
    matrix that needs most takes beside its packed form until that is done.
    """
    rope_table = 3 * config.max_model_len * config.head_dim * _FP32_BYTES // 2
    return weight_bytes(config, itemsize) + rope_table + LOADERS * packing


def check_memory(config: ModelConfig, itemsize: float, available: int | None = None, packing: int = 0) -> None:
    """Raises ConfigError with both numbers when the model does not fit into `available` bytes (None: what is free)."""
    free = psutil.virtual_memory().available if available is None else available
    needed = estimate_bytes(config, itemsize, packing)
    if needed > free:
        raise ConfigError(
            f"The model needs {_readable(needed)} of memory for its weights, but {_readable(free)} is available. "
            f"Free some, or choose a smaller model or dtype."
        )


def _readable(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"
