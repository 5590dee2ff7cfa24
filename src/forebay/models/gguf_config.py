"""Reads the metadata of a GGUF file into a `ModelConfig`. Not its weights, and no torch.

What would change the computation and is not implemented is refused by name.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from forebay.core.errors import UnsupportedModelError
from forebay.core.gguf import GgufFile
from forebay.models.config import ModelConfig, RopeConfig, RopeKind

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""GGUF writes Mistral as llama too."""
ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")

_MAX_SIZE = 1 << 24
_MAX_LAYERS = 4096
_ROPE_KINDS = {
    "none": RopeKind.DEFAULT,
    "linear": RopeKind.LINEAR,
    "yarn": RopeKind.YARN,
    "longrope": RopeKind.LONGROPE,
}
_SCALES = ("attention.scale", "embedding_scale", "residual_scale", "logit_scale", "attn_logit_softcapping")


def read_gguf_config(file: GgufFile) -> ModelConfig:
    """The config of the model in `file`. Raises UnsupportedModelError naming the key to blame."""
    architecture = file.metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"The GGUF file's architecture is {architecture!r}; Forebay runs {', '.join(ARCHITECTURES)} from GGUF."
        )
    keys = _Keys(file.metadata, architecture)
    _refuse_unsupported(file, keys)
    heads, hidden, layers = keys.size("attention.head_count"), keys.size("embedding_length"), keys.layers()
    head_dim = keys.size("attention.key_length", hidden // heads)
    rope = _rope(file, keys, head_dim)
    return ModelConfig(
        architecture=architecture,
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        kv_heads=keys.size("attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate_size=keys.size("feed_forward_length"),
        vocab_size=_vocab_size(file),
        max_model_len=_max_model_len(keys, rope),
        norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
        rope=rope,
        windows=(keys.size("attention.sliding_window", 0) or None,) * layers,
        tied_embeddings="output.weight" not in file.tensors,
        attention_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_down.bias" in file.tensors,
        qk_norm=architecture == "qwen3",
    )


class _Keys:
    """The metadata under the architecture's prefix, with types checked."""

    def __init__(self, metadata: dict[str, Any], architecture: str) -> None:
        self.metadata = metadata
        self.prefix = architecture

    def get(self, key: str) -> Any:
        return self.metadata.get(f"{self.prefix}.{key}")

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number; `default` (which may be 0) when the key is not there."""
        found = self.get(key)
        if found is None and default is not None:
            return default
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < float("inf"):
            raise UnsupportedModelError(
                f"The GGUF file's {self.prefix}.{key} is {_shown(found)}, not a positive number."
            )
        return found

    def size(self, key: str, default: int | None = None) -> int:
        """A positive integer; one value for all layers where the file gives one a layer."""
        found = self.get(key)
        if found is None and default is not None:
            return default
        if isinstance(found, list) and len(set(map(repr, found))) == 1:
            found = found[0]
        if isinstance(found, bool) or not isinstance(found, int) or not 0 < found <= _MAX_SIZE:
            raise UnsupportedModelError(f"The GGUF file's {self.prefix}.{key} is {_shown(found)}, not a usable size.")
        return found

    def layers(self) -> int:
        layers = self.size("block_count")
        if layers > _MAX_LAYERS:
            raise UnsupportedModelError(
                f"The GGUF file announces {layers} layers; at most {_MAX_LAYERS} are supported."
            )
        return layers


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)[:60]


def _refuse_unsupported(file: GgufFile, keys: _Keys) -> None:
    parts = file.metadata.get("split.count", 1)
    if parts != 1:
        raise UnsupportedModelError(f"The GGUF file is one of {parts} parts; merge them into one file first.")
    if keys.get("expert_count"):
        raise UnsupportedModelError("The GGUF file is a mixture of experts, which Forebay does not run yet.")
    scale = next((key for key in _SCALES if keys.get(key) is not None), None)
    if scale:
        raise UnsupportedModelError(f"The GGUF file sets {keys.prefix}.{scale}, which Forebay does not apply.")
    if keys.get("rope.scaling.yarn_log_multiplier") or keys.get("rope.scaling.yarn_ext_factor") not in {None, 1.0}:
        raise UnsupportedModelError("The GGUF file's YaRN has a log multiplier or an extrapolation factor of its own.")
    key_length = keys.get("attention.key_length")
    if keys.get("attention.value_length") not in {None, key_length}:
        raise UnsupportedModelError("The GGUF file's keys and values differ in size (attention.value_length).")


def _vocab_size(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise UnsupportedModelError("The model's files lack token_embd.weight.")
    return embedding.shape[0]


def _max_model_len(keys: _Keys, rope: RopeConfig) -> int:
    """As for Hugging Face folders: YaRN may stretch beyond the context that is written down."""
    stretched = int(rope.original_max_len * rope.factor) if rope.kind is RopeKind.YARN else 0
    return max(keys.size("context_length"), stretched)


def _rope(file: GgufFile, keys: _Keys, head_dim: int) -> RopeConfig:
    if keys.size("rope.dimension_count", head_dim) != head_dim:
        raise UnsupportedModelError("The GGUF file rotates only a part of each head (rope.dimension_count).")
    name = keys.get("rope.scaling.type") or ("linear" if keys.get("rope.scale_linear") else "none")
    if name not in _ROPE_KINDS:
        raise UnsupportedModelError(f"The GGUF file's rope scaling is {name!r}; Forebay has {', '.join(_ROPE_KINDS)}.")
    kind, context = _ROPE_KINDS[name], keys.size("context_length")
    trained = keys.size("rope.scaling.original_context_length", context)
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", context / trained))
    return RopeConfig(
        theta=keys.number("rope.freq_base", 10000.0),
        kind=kind,
        factor=factor,
        original_max_len=trained,
        attention_factor=_attention_factor(keys, kind, factor),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
        short_factor=_factors(file, "rope_factors_short.weight"),
        long_factor=_factors(file, "rope_factors_long.weight"),
        divisors=_factors(file, "rope_freqs.weight"),
    )


def _attention_factor(keys: _Keys, kind: RopeKind, factor: float) -> float | None:
    """`attn_factor` is all of it for longrope; it multiplies what YaRN's own key says or what follows from `factor`."""
    given = keys.number("rope.scaling.attn_factor", 0.0) or None
    if kind is not RopeKind.YARN:
        return given
    derived = 1.0 + 0.1 * math.log(max(factor, 1.0))
    return keys.number("rope.scaling.yarn_attn_factor", derived) * (given or 1.0)


def _factors(file: GgufFile, name: str) -> tuple[float, ...]:
    tensor = file.tensors.get(name)
    if tensor is None:
        return ()
    if tensor.type.name != "F32" or len(tensor.shape) != 1 or tensor.nbytes > 1 << 16:
        raise UnsupportedModelError(f"The GGUF file's {name} is not a short F32 vector.")
    factors = struct.unpack(f"<{tensor.nbytes // 4}f", file.tensor_bytes(name).tobytes())
    if not all(math.isfinite(factor) and factor > 0 for factor in factors):
        raise UnsupportedModelError(f"The GGUF file's {name} has values that are not positive numbers.")
    return factors
