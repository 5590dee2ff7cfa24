"""What a model is, as plain numbers: everything that building, refusing and sizing it needs. Not its weights; no torch.

`hf_config` and `gguf_config` make a `ModelConfig` from a file; the transformer is driven by nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forebay.core.errors import UnsupportedModelError


class RopeKind(StrEnum):
    """How rotary frequencies are stretched beyond the trained context."""

    DEFAULT = "default"
    LINEAR = "linear"
    DYNAMIC = "dynamic"
    """Base changes with the length beyond the trained context; within it, where we serve, it equals DEFAULT."""
    LLAMA3 = "llama3"
    YARN = "yarn"
    LONGROPE = "longrope"


TRAINED_SHORTER = (RopeKind.LLAMA3, RopeKind.YARN, RopeKind.LONGROPE)
"""The kinds that depend on the context that the model was trained on."""


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding: base and scaling. Fields that a kind does not use keep their defaults."""

    theta: float = 10000.0
    kind: RopeKind = RopeKind.DEFAULT
    factor: float = 1.0
    original_max_len: int = 0
    """Context that the model was trained on before it was stretched (llama3, yarn, longrope)."""
    attention_factor: float | None = None
    """Scales cos and sin (yarn, longrope); None: derived from `factor`."""
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    mscale: float = 0.0
    mscale_all_dim: float = 0.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    divisors: tuple[float, ...] = ()
    """One a frequency: GGUF's ready-made way to write llama3 scaling. Empty: none."""

    def __post_init__(self) -> None:
        """Refuse numbers that would divide by zero."""
        if self.theta <= 1:
            raise UnsupportedModelError(f"The rotary base {self.theta} must be above 1.")
        if self.kind in TRAINED_SHORTER and self.original_max_len < 2:
            raise UnsupportedModelError(f"The rope scaling {self.kind} needs the context that it was trained on.")
        if self.high_freq_factor <= self.low_freq_factor:
            raise UnsupportedModelError("The rope scaling's high_freq_factor must be above its low_freq_factor.")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder-only transformer with grouped-query attention, rotary positions and a gated MLP."""

    architecture: str
    """`llama`, `mistral`, `qwen2` or `qwen3`."""
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_model_len: int
    """Tokens of prompt and answer together that the model was made for."""
    norm_eps: float
    rope: RopeConfig
    windows: tuple[int | None, ...]
    """For each layer: how many positions a token sees, itself included; None: all."""
    tied_embeddings: bool = False
    """The output head is the embedding matrix, stored once."""
    attention_bias: bool = False
    """Biases on q, k and v."""
    output_bias: bool = False
    """Bias on the attention's output projection."""
    mlp_bias: bool = False
    """Biases on gate, up and down."""
    qk_norm: bool = False
    """RMS norm on each q and k head before the rotary embedding."""

    def __post_init__(self) -> None:
        """Refuse sizes that contradict each other, so that nothing later has to check them."""
        if self.heads % self.kv_heads:
            raise UnsupportedModelError(f"{self.heads} query heads can't share {self.kv_heads} key heads evenly.")
        if self.head_dim % 2:
            raise UnsupportedModelError(f"The head size {self.head_dim} is odd, so it has no rotary pairs.")
        if len(self.windows) != self.layers:
            raise UnsupportedModelError(
                f"{len(self.windows)} layers have a window setting, but there are {self.layers}."
            )
        pairs = self.head_dim // 2
        if self.rope.kind is RopeKind.LONGROPE and {len(self.rope.short_factor), len(self.rope.long_factor)} != {pairs}:
            raise UnsupportedModelError(f"The rope scaling longrope needs {pairs} short factors and as many long ones.")
        if self.rope.divisors and len(self.rope.divisors) != pairs:
            raise UnsupportedModelError(
                f"The model has {len(self.rope.divisors)} rope frequency divisors, not {pairs}."
            )

    @property
    def qkv_size(self) -> int:
        """Outputs of the fused q, k, v projection."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def sliding_window(self) -> int | None:
        """The widest window when every layer has one, else None: how far back a token can see at most."""
        widths = [width for width in self.windows if width is not None]
        return max(widths) if len(widths) == self.layers else None

    @property
    def matrix_parameters(self) -> int:
        """Numbers in matrices: what is stored in the weights' dtype."""
        attention = self.hidden_size * (self.qkv_size + self.heads * self.head_dim)
        mlp = 3 * self.hidden_size * self.intermediate_size
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tied_embeddings else 2)
        return self.layers * (attention + mlp) + embeddings

    @property
    def vector_parameters(self) -> int:
        """Numbers in norms and biases: always stored in fp32."""
        norms = 2 * self.hidden_size + 2 * self.head_dim * self.qk_norm
        biases = (
            self.qkv_size * self.attention_bias
            + self.hidden_size * self.output_bias
            + (2 * self.intermediate_size + self.hidden_size) * self.mlp_bias
        )
        return self.layers * (norms + biases) + self.hidden_size

    @property
    def parameters(self) -> int:
        """All numbers of the model; tied embeddings count once."""
        return self.matrix_parameters + self.vector_parameters
