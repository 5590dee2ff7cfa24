"""The forward pass of every architecture we run, driven by `ModelConfig`. Not loading.

`Model._layer` says what a layer is, in nine kernel calls; a backend that can run all layers in one call does the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from forebay.core.activations import Activations
from forebay.kernels import EndWeights, Kernels, KvLayout, LayerSettings, LayerWeights, StepBatch, Weight
from forebay.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """All weights; `head` is the same object as `embed` when they are tied."""

    embed: Weight
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    head: Weight
    cos_sin: Tensor
    """[max_model_len, head_dim]: the rotary table."""


class Model:
    """A loaded model. Stateless: a sequence's state is in the pages that the caller passes."""

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        kernels: Kernels,
        fingerprint: str,
        activations: Activations = "fp32",
    ) -> None:
        self.config = config
        self.activations = activations
        """How far its layers' inputs are rounded, which its weights decide as well as what `kernels` may do."""
        self.fingerprint = fingerprint
        """Hex digest over config, weights' identity and dtype."""
        self._weights = weights
        self._kernels = kernels
        self._settings = LayerSettings(weights.cos_sin, config.norm_eps, config.head_dim**-0.5, config.windows)
        kernels.settle(list(self._matrices()))
        ends = EndWeights(weights.embed, weights.final_norm, weights.head)
        self._stack = kernels.stack(weights.layers, self._settings, ends)

    @property
    def weight_bytes(self) -> int:
        """Bytes held by weights, tied embeddings counted once, and by the rotary table."""
        tensors: dict[int, Tensor | Weight] = {}
        holders: tuple[ModelWeights | LayerWeights, ...] = (self._weights, *self._weights.layers)
        for holder in holders:
            values = (getattr(holder, field.name) for field in fields(holder))
            tensors.update({id(value): value for value in values if hasattr(value, "nbytes")})
        return sum(value.nbytes for value in tensors.values())

    @property
    def read_bytes(self) -> int:
        """Bytes of weights that a step reads: all but an embedding that is not the head as well."""
        embed, head = self._weights.embed, self._weights.head
        return self.weight_bytes - (0 if embed is head else embed.nbytes)

    def _matrices(self) -> Iterator[Weight]:
        for layer in self._weights.layers:
            yield from (layer.qkv, layer.output, layer.gate_up, layer.down)
        yield self._weights.head

    def kv_identity(self, layout: KvLayout) -> str:
        """What the content of pages of `layout` depends on beside their tokens: this, and how attention rounds."""
        rounds = self._kernels.rounds_bf16 and layout.dtype is torch.bfloat16
        return f"{self.fingerprint}:{layout}{':bf16' if rounds else ''}"

    def layout(self, kv_dtype: torch.dtype) -> KvLayout:
        """The shape of the page store for this model with keys and values stored as `kv_dtype`."""
        return KvLayout(self.config.layers, self.config.kv_heads, self.config.head_dim, kv_dtype)

    @torch.inference_mode()
    def forward(self, ids: Tensor, batch: StepBatch, pages: Tensor, layout: KvLayout) -> Tensor:
        """Token ids int32 [T] → hidden states fp32 [T, hidden], before the final norm. Writes K and V into `pages`."""
        hidden = self._kernels.embed(ids, self._weights.embed)
        if self._stack is not None:
            self._stack.run(hidden, batch, pages, layout)
            return hidden
        for number in range(self.config.layers):
            hidden = self._layer(number, hidden, batch, pages, layout)
        return hidden

    @torch.inference_mode()
    def decode(self, ids: Tensor, batch: StepBatch, pages: Tensor, layout: KvLayout) -> Tensor:
        """Token ids int32 [T] → logits fp32 [T, vocab] of all of them: those of `forward`, the same bits, in one call
        where the backend has that.
        """
        if self._stack is None:
            return self.logits(self.forward(ids, batch, pages, layout))
        return self._stack.decode(ids, batch, pages, layout)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states of any M tokens [M, hidden] → logits fp32 [M, vocab]."""
        normed = self._kernels.rms_norm(hidden, self._weights.final_norm, self.config.norm_eps)
        return self._kernels.linear(normed, self._weights.head)

    def _layer(self, number: int, hidden: Tensor, batch: StepBatch, pages: Tensor, layout: KvLayout) -> Tensor:
        kernels, layer, eps = self._kernels, self._weights.layers[number], self.config.norm_eps
        qkv = kernels.linear(kernels.rms_norm(hidden, layer.attn_norm, eps), layer.qkv, layer.qkv_bias)
        kernels.rope_and_store(
            qkv, self._weights.cos_sin, batch, pages, number, layout, layer.q_norm, layer.k_norm, eps
        )
        mixed = kernels.attention(qkv, batch, pages, number, layout, self._settings.scale, self.config.windows[number])
        hidden = kernels.linear(mixed, layer.output, layer.output_bias, residual=hidden)
        gate_up = kernels.linear(kernels.rms_norm(hidden, layer.mlp_norm, eps), layer.gate_up, layer.gate_up_bias)
        return kernels.linear(kernels.silu_mul(gate_up), layer.down, layer.down_bias, residual=hidden)
