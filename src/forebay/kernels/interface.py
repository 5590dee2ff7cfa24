"""What a kernel backend can do, in torch tensors; the models call nothing else. Not an implementation.

Backends: `native` (C++, compiled for this machine) and `torch` (portable; the oracle in tests). All activations are
fp32 and contiguous unless said otherwise. Weights are bf16, fp32 or quantised; KV is bf16 or fp32.

Every operation gives, bit for bit, the same numbers for a token whatever other tokens are in the call (native backend):
the answer of a request does not depend on batch, chunking or preemption.

Shapes: T tokens of this step in R rows (ragged), H query heads, G KV heads, D head size, P pages, L layers, 16 tokens a
page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from forebay.core.activations import Activations
from forebay.core.copying import CopyBytes
from forebay.kernels.draw import Pick
from forebay.kernels.quantised import QuantisedMatrix
from forebay.kernels.stored import StoredRows

PAGE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Where the tokens of one step stand. All int32, on the CPU, contiguous.

    Row r holds tokens [row_starts[r], row_starts[r + 1]) of the step, which are the last ones of a sequence of
    context[r] tokens, itself included: token j of row r has position context[r] - length(r) + j and sees all positions
    up to its own. Not to be changed once a backend has seen it: backends check it and keep its addresses once.
    """

    positions: Tensor
    """[T]: each token's position in its sequence."""
    row_starts: Tensor
    """[R + 1]"""
    context: Tensor
    """[R]: tokens in the sequence once this step is written."""
    page_table: Tensor
    """[R, most pages]: page numbers of each sequence in order; unused entries are 0."""
    slots: Tensor
    """[T]: where the token's K and V go: page number * 16 + offset."""


@dataclass(frozen=True, slots=True)
class KvLayout:
    """The shape of the page store: one tensor [P, L, 2, G * 16 * D], so a page of all layers is one memory range.

    Within a layer of a page, K lies as [G, D, 16] (so that 16 keys are one vector) and V as [G, 16, D].
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all layers, K and V."""
        return self.layers * 2 * PAGE_TOKENS * self.kv_heads * self.head_dim * self.dtype.itemsize

    def allocate(self, pages: int) -> Tensor:
        """A page store of `pages` pages; its memory is committed by the system as pages are first written."""
        return torch.empty((pages, self.layers, 2, PAGE_TOKENS * self.kv_heads * self.head_dim), dtype=self.dtype)


class Weight(Protocol):
    """A matrix [N, K] packed by a backend; only that backend can read it."""

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K): outputs, inputs."""

    @property
    def nbytes(self) -> int:
        """Memory held."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One transformer layer: matrices packed by a backend, norms and biases as fp32 vectors (None: there is none)."""

    attn_norm: Tensor
    qkv: Weight
    """q, k and v in one matrix, [(H + 2G) * D, hidden]."""
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Weight
    output_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Weight
    """gate and up in one matrix, [2 * intermediate, hidden]."""
    gate_up_bias: Tensor | None
    down: Weight
    down_bias: Tensor | None


@dataclass(frozen=True, slots=True)
class LayerSettings:
    """What all layers of a model share."""

    cos_sin: Tensor
    """[positions, D]: the rotary table."""
    eps: float
    scale: float
    windows: tuple[int | None, ...]
    """For each layer: how many positions a token sees, itself included; None: all."""


@dataclass(frozen=True, slots=True)
class EndWeights:
    """What is before and after a model's layers."""

    embed: Weight
    final_norm: Tensor
    """fp32 [hidden size]."""
    head: Weight


class Stack(Protocol):
    """All layers of a model behind one call."""

    def run(self, hidden: Tensor, batch: StepBatch, pages: Tensor, layout: KvLayout) -> None:
        """hidden [T, hidden size] through all layers, in place; K and V are written to the pages."""

    def decode(self, ids: Tensor, batch: StepBatch, pages: Tensor, layout: KvLayout) -> Tensor:
        """ids int32 [T] → logits fp32 [T, vocabulary] of all tokens; K and V are written to the pages."""


class Kernels(Protocol):
    """One backend."""

    name: str

    keeps_quantised: bool
    """Whether quantised matrices stay at their few bits in memory; else they are stored dequantised."""

    activations: Activations
    """How far `linear` may round its inputs."""

    rounds_bf16: bool
    """Whether it rounds them to bf16 with matrices of bf16, and `attention` its queries and weights with K and V of
    bf16: where that is allowed, and faster.
    """

    copy_bytes: CopyBytes
    """Copies memory that is not read soon: pages of the KV cache between the tiers."""

    def pack(self, weight: Tensor, dtype: torch.dtype) -> Weight:
        """Pack `weight` [N, K] (any float dtype) for `linear` and `embed`, stored as `dtype` (bf16 or fp32)."""

    def pack_quantised(self, matrix: QuantisedMatrix, dtype: torch.dtype) -> Weight:
        """Pack a quantised matrix; a backend that doesn't keep it quantised stores it as `dtype`."""

    def pack_stored(self, parts: Sequence[StoredRows], dtype: torch.dtype) -> Weight:
        """Pack a file's rows, the parts below each other: plain numbers as `dtype`, quantised ones as `pack_quantised`
        does. All parts are of one K, and all plain or of as many bits. Threads may call this at the same time.
        """

    def settle(self, weights: Sequence[Weight]) -> None:
        """Choose what is fastest on this machine for packed matrices, once all are there. The results stay the same."""

    def linear(self, x: Tensor, weight: Weight, bias: Tensor | None = None, residual: Tensor | None = None) -> Tensor:
        """x [T, K] → x @ weightᵀ (+ bias [N]) (+ residual [T, N]) as [T, N]. With `activations` int8 and a quantised
        weight, x is `rounded_inputs(x)`; with `rounds_bf16` and a weight of bf16, x is rounded to bf16.
        """

    def embed(self, ids: Tensor, weight: Weight) -> Tensor:
        """ids int32 [T] → rows of `weight`, fp32 [T, K]."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x [T, N] / rms(x) * weight [N]."""

    def rope_and_store(  # noqa: PLR0917  (one call a layer on the hot path)
        self,
        qkv: Tensor,
        cos_sin: Tensor,
        batch: StepBatch,
        pages: Tensor,
        layer: int,
        layout: KvLayout,
        q_norm: Tensor | None = None,
        k_norm: Tensor | None = None,
        eps: float = 0.0,
    ) -> None:
        """In place on qkv [T, (H + 2G) * D] (q heads, k heads, v heads): optional RMS norm of each q and k head with
        weights [D], then rotary embedding of q and k (half-split pairs: d with d + D/2) by cos_sin [max position, D]
        (cos of D/2 frequencies, then sin), then k and v are written to the pages at batch.slots.
        """

    def attention(  # noqa: PLR0917
        self,
        qkv: Tensor,
        batch: StepBatch,
        pages: Tensor,
        layer: int,
        layout: KvLayout,
        scale: float,
        window: int | None,
    ) -> Tensor:
        """Causal attention of the q heads in qkv [T, (H + 2G) * D] over the pages → [T, H * D]. With `window` w, a
        token at position p sees positions p - w + 1 to p. With `rounds_bf16` and pages of bf16, scaled queries and
        weights (not yet divided by their sum) are rounded to bf16.
        """

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """[T, 2I] → silu(first half) * second half, [T, I]."""

    def draw(self, logits: Tensor, picks: Sequence[Pick]) -> list[int]:
        """One token for each pick from logits [M, V], of which a row has at least one finite value."""

    def copy_pages(self, pages: Tensor, pairs: list[tuple[int, int]]) -> None:
        """Copy whole pages, (source, destination) each; sources and destinations are disjoint."""

    def stack(self, layers: tuple[LayerWeights, ...], settings: LayerSettings, ends: EndWeights) -> Stack | None:
        """The same operations for all layers in one call, with the same bits, where the backend has that; else None."""
