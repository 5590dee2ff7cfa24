"""Reads the config.json of a Hugging Face folder into a `ModelConfig`. Not its weights, and no torch.

Defaults are those of the `transformers` classes, since a config.json may leave out what equals them. What would change
the computation and is not implemented is refused by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from forebay.core.errors import UnsupportedModelError
from forebay.models.config import TRAINED_SHORTER, ModelConfig, RopeConfig, RopeKind

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_MAX_POSITIONS = {"llama": 2048, "mistral": 131072, "qwen2": 32768, "qwen3": 32768}
_KV_HEADS = {"llama": None, "mistral": 8, "qwen2": 32, "qwen3": 32}


_Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
_Layers = Annotated[int, msgspec.Meta(ge=1, le=4096)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]


class _HfConfig(msgspec.Struct):
    """The fields of config.json that decide what is computed; others are ignored."""

    model_type: str
    hidden_size: _Size
    num_hidden_layers: _Layers
    num_attention_heads: _Size
    intermediate_size: _Size
    vocab_size: _Size
    architectures: list[str] | None = None
    num_key_value_heads: _Size | msgspec.UnsetType | None = msgspec.UNSET
    head_dim: _Size | None = None
    hidden_act: str = "silu"
    max_position_embeddings: _Size | None = None
    original_max_position_embeddings: _Size | None = None
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    rope_theta: _Positive | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    partial_rotary_factor: float | None = None
    use_sliding_window: bool = False
    sliding_window: _Size | msgspec.UnsetType | None = msgspec.UNSET
    max_window_layers: int = 28
    layer_types: list[str] | None = None
    quantization_config: dict[str, Any] | None = None


class _RopeParameters(msgspec.Struct):
    rope_type: str | None = None
    type: str | None = None
    rope_theta: _Positive | None = None
    partial_rotary_factor: float | None = None
    factor: _Positive | None = None
    original_max_position_embeddings: _Size | None = None
    attention_factor: _Positive | None = None
    beta_fast: _Positive | None = None
    beta_slow: _Positive | None = None
    truncate: bool = True
    mscale: float | None = None
    mscale_all_dim: float | None = None
    low_freq_factor: _Positive | None = None
    high_freq_factor: _Positive | None = None
    short_factor: list[_Positive] = []
    long_factor: list[_Positive] = []


def read_hf_config(folder: Path) -> ModelConfig:
    """The config of the model in `folder`. Raises UnsupportedModelError naming what is not supported."""
    raw = _decode(folder)
    _refuse_unsupported(raw)
    kind = raw.model_type
    heads = raw.num_attention_heads
    return ModelConfig(
        architecture=kind,
        hidden_size=raw.hidden_size,
        layers=raw.num_hidden_layers,
        heads=heads,
        kv_heads=_kv_heads(raw),
        head_dim=raw.head_dim or (128 if kind == "qwen3" else raw.hidden_size // heads),
        intermediate_size=raw.intermediate_size,
        vocab_size=raw.vocab_size,
        max_model_len=_max_model_len(raw),
        norm_eps=raw.rms_norm_eps,
        rope=_rope(raw),
        windows=_windows(raw),
        tied_embeddings=raw.tie_word_embeddings,
        attention_bias=kind == "qwen2" or (kind != "mistral" and raw.attention_bias),
        output_bias=kind in {"llama", "qwen3"} and raw.attention_bias,
        mlp_bias=kind == "llama" and raw.mlp_bias,
        qk_norm=kind == "qwen3",
    )


def _decode(folder: Path) -> _HfConfig:
    try:
        content = (folder / "config.json").read_bytes()
        named = msgspec.json.decode(content, type=dict[str, Any])
        kind = named.get("model_type")
        if kind not in ARCHITECTURES:
            raise UnsupportedModelError(
                f"The model's architecture is {kind!r}; Forebay runs {', '.join(sorted(ARCHITECTURES))}."
            )
        return msgspec.json.decode(content, type=_HfConfig)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnsupportedModelError(f"The model's config.json can't be read: {error}") from None
    except OSError as error:
        raise UnsupportedModelError(f"The model's config.json can't be read: {error.strerror}.") from None


def _refuse_unsupported(raw: _HfConfig) -> None:
    expected = ARCHITECTURES[raw.model_type]
    if raw.architectures and expected not in raw.architectures:
        raise UnsupportedModelError(f"The model is a {raw.architectures[0]}; of this family Forebay runs {expected}.")
    if raw.quantization_config is not None:
        method = raw.quantization_config.get("quant_method", "an unnamed method")
        raise UnsupportedModelError(
            f"The model's weights are quantised with {method}; Forebay reads quantised weights from GGUF files only."
        )
    if raw.hidden_act != "silu":
        raise UnsupportedModelError(f"The model's activation is {raw.hidden_act!r}; Forebay has silu.")


def _kv_heads(raw: _HfConfig) -> int:
    """`null` means as many as query heads; left out means the class's default, which for Llama is the same."""
    given = raw.num_key_value_heads
    if given is msgspec.UNSET:
        given = _KV_HEADS[raw.model_type]
    return given or raw.num_attention_heads


def _max_positions(raw: _HfConfig) -> int:
    return raw.max_position_embeddings or _MAX_POSITIONS[raw.model_type]


def _max_model_len(raw: _HfConfig) -> int:
    """YaRN configs may keep the trained length in max_position_embeddings, and mean `factor` times as much."""
    rope = _rope(raw)
    stretched = int(rope.original_max_len * rope.factor) if rope.kind is RopeKind.YARN else 0
    return max(_max_positions(raw), stretched)


def _windows(raw: _HfConfig) -> tuple[int | None, ...]:
    layers = raw.num_hidden_layers
    if raw.model_type == "llama" or (raw.model_type != "mistral" and not raw.use_sliding_window):
        return (None,) * layers
    width = 4096 if raw.sliding_window is msgspec.UNSET else raw.sliding_window
    if raw.model_type == "mistral":
        return (width,) * layers
    if raw.layer_types is None:
        return tuple(width if layer >= raw.max_window_layers else None for layer in range(layers))
    unknown = set(raw.layer_types) - {"full_attention", "sliding_attention"}
    if unknown or len(raw.layer_types) != layers:
        raise UnsupportedModelError(f"The model's layer_types are not understood: {sorted(set(raw.layer_types))}.")
    return tuple(width if kind == "sliding_attention" else None for kind in raw.layer_types)


def _rope(raw: _HfConfig) -> RopeConfig:
    try:
        found = msgspec.convert(raw.rope_parameters or raw.rope_scaling or {}, _RopeParameters, strict=False)
    except msgspec.ValidationError as error:
        raise UnsupportedModelError(f"The model's rope parameters can't be read: {error}") from None
    name = found.rope_type or found.type or "default"
    if name not in set(RopeKind):
        raise UnsupportedModelError(
            f"The model's rope scaling is {name!r}; Forebay has {', '.join(kind.value for kind in RopeKind)}."
        )
    if (found.partial_rotary_factor or raw.partial_rotary_factor or 1.0) != 1.0:
        raise UnsupportedModelError("The model rotates only a part of each head (partial_rotary_factor).")
    kind, positions = RopeKind(name), _max_positions(raw)
    if found.factor is None and kind in {RopeKind.LINEAR, RopeKind.DYNAMIC, RopeKind.LLAMA3}:
        raise UnsupportedModelError(f"The model's rope scaling {name!r} lacks its factor.")
    trained = raw.original_max_position_embeddings or found.original_max_position_embeddings or positions
    factor = found.factor or (positions / trained if kind in TRAINED_SHORTER else 1.0)
    return RopeConfig(
        theta=found.rope_theta or raw.rope_theta or 10000.0,
        kind=kind,
        factor=factor,
        original_max_len=trained if kind in TRAINED_SHORTER else 0,
        attention_factor=found.attention_factor,
        beta_fast=found.beta_fast or 32.0,
        beta_slow=found.beta_slow or 1.0,
        truncate=found.truncate,
        mscale=found.mscale or 0.0,
        mscale_all_dim=found.mscale_all_dim or 0.0,
        low_freq_factor=found.low_freq_factor or 1.0,
        high_freq_factor=found.high_freq_factor or 4.0,
        short_factor=tuple(found.short_factor),
        long_factor=tuple(found.long_factor),
    )
