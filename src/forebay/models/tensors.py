"""The tensors that a model consists of: their parts, shapes and names in the two file formats. No data; no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from forebay.core.errors import UnsupportedModelError
from forebay.models.config import ModelConfig


class Part(StrEnum):
    """One tensor's role. The value is its name within a layer (or the model) of a Hugging Face checkpoint."""

    EMBED = "model.embed_tokens.weight"
    FINAL_NORM = "model.norm.weight"
    HEAD = "lm_head.weight"
    ATTN_NORM = "input_layernorm.weight"
    Q = "self_attn.q_proj.weight"
    K = "self_attn.k_proj.weight"
    V = "self_attn.v_proj.weight"
    O = "self_attn.o_proj.weight"  # noqa: E741 - the field's name for it
    Q_BIAS = "self_attn.q_proj.bias"
    K_BIAS = "self_attn.k_proj.bias"
    V_BIAS = "self_attn.v_proj.bias"
    O_BIAS = "self_attn.o_proj.bias"
    Q_NORM = "self_attn.q_norm.weight"
    K_NORM = "self_attn.k_norm.weight"
    MLP_NORM = "post_attention_layernorm.weight"
    GATE = "mlp.gate_proj.weight"
    UP = "mlp.up_proj.weight"
    DOWN = "mlp.down_proj.weight"
    GATE_BIAS = "mlp.gate_proj.bias"
    UP_BIAS = "mlp.up_proj.bias"
    DOWN_BIAS = "mlp.down_proj.bias"


GGUF_NAMES = {
    Part.EMBED: "token_embd.weight",
    Part.FINAL_NORM: "output_norm.weight",
    Part.HEAD: "output.weight",
    Part.ATTN_NORM: "attn_norm.weight",
    Part.Q: "attn_q.weight",
    Part.K: "attn_k.weight",
    Part.V: "attn_v.weight",
    Part.O: "attn_output.weight",
    Part.Q_BIAS: "attn_q.bias",
    Part.K_BIAS: "attn_k.bias",
    Part.V_BIAS: "attn_v.bias",
    Part.O_BIAS: "attn_output.bias",
    Part.Q_NORM: "attn_q_norm.weight",
    Part.K_NORM: "attn_k_norm.weight",
    Part.MLP_NORM: "ffn_norm.weight",
    Part.GATE: "ffn_gate.weight",
    Part.UP: "ffn_up.weight",
    Part.DOWN: "ffn_down.weight",
    Part.GATE_BIAS: "ffn_gate.bias",
    Part.UP_BIAS: "ffn_up.bias",
    Part.DOWN_BIAS: "ffn_down.bias",
}


def hf_name(part: Part, layer: int | None) -> str:
    """The tensor's name in a Hugging Face checkpoint; `layer` is None for parts outside the layers."""
    return part.value if layer is None else f"model.layers.{layer}.{part.value}"


def gguf_name(part: Part, layer: int | None) -> str:
    """The tensor's name in a GGUF file."""
    return GGUF_NAMES[part] if layer is None else f"blk.{layer}.{GGUF_NAMES[part]}"


def part_shapes(config: ModelConfig) -> dict[tuple[Part, int | None], tuple[int, ...]]:
    """Every tensor that the model needs with its shape, row-major: a matrix is (outputs, inputs)."""
    hidden, vocab = config.hidden_size, config.vocab_size
    shapes: dict[tuple[Part, int | None], tuple[int, ...]] = {
        (Part.EMBED, None): (vocab, hidden),
        (Part.FINAL_NORM, None): (hidden,),
    }
    if not config.tied_embeddings:
        shapes[Part.HEAD, None] = (vocab, hidden)
    per_layer = _layer_shapes(config)
    shapes.update({(part, layer): shape for layer in range(config.layers) for part, shape in per_layer.items()})
    return shapes


def _layer_shapes(config: ModelConfig) -> dict[Part, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    q_size, kv_size = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes: dict[Part, tuple[int, ...]] = {
        Part.ATTN_NORM: (hidden,),
        Part.Q: (q_size, hidden),
        Part.K: (kv_size, hidden),
        Part.V: (kv_size, hidden),
        Part.O: (hidden, q_size),
        Part.MLP_NORM: (hidden,),
        Part.GATE: (inner, hidden),
        Part.UP: (inner, hidden),
        Part.DOWN: (hidden, inner),
    }
    if config.attention_bias:
        shapes |= {Part.Q_BIAS: (q_size,), Part.K_BIAS: (kv_size,), Part.V_BIAS: (kv_size,)}
    if config.output_bias:
        shapes[Part.O_BIAS] = (hidden,)
    if config.mlp_bias:
        shapes |= {Part.GATE_BIAS: (inner,), Part.UP_BIAS: (inner,), Part.DOWN_BIAS: (hidden,)}
    if config.qk_norm:
        shapes |= {Part.Q_NORM: (config.head_dim,), Part.K_NORM: (config.head_dim,)}
    return shapes


def check_tensors(
    wanted: Mapping[str, tuple[int, ...]],
    found: Mapping[str, tuple[int, ...]],
    found_types: Mapping[str, str],
    readable_types: Iterable[str],
    ignored: Iterable[str] = (),
) -> None:
    """Refuse a file whose tensors are not exactly what the model needs, naming the tensors to blame.

    A tensor too many is refused as one too few is: it means that the model computes something that we would leave out.
    Names that end in one of `ignored` are let pass. Raises UnsupportedModelError.
    """
    missing = [name for name in wanted if name not in found]
    if missing:
        raise UnsupportedModelError(f"The model's files lack {_listed(missing)}.")
    suffixes = tuple(ignored)
    extra = [name for name in found if name not in wanted and not name.endswith(suffixes)]
    if extra:
        raise UnsupportedModelError(f"The model has tensors that its architecture has no use for: {_listed(extra)}.")
    for name, shape in wanted.items():
        if found[name] != shape:
            raise UnsupportedModelError(
                f"The tensor {name} has shape {found[name]}, but {shape} follows from the config."
            )
    readable = set(readable_types)
    unreadable = [f"{name} ({found_types[name]})" for name in wanted if found_types[name] not in readable]
    if unreadable:
        raise UnsupportedModelError(
            f"Tensors are stored in types that Forebay can't read: {_listed(unreadable)}. "
            f"It reads {', '.join(sorted(readable))}."
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
