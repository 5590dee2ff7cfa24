"""The kernels in plain torch: the oracle in tests, and the fallback where no compiler is. Clear before fast.

All arithmetic is fp32 whatever the storage type is. Not bitwise invariant: torch's matmul may sum in another order for
another number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from forebay.core.activations import Activations
from forebay.core.copying import CopyBytes, plain_copy
from forebay.kernels.draw import Pick, draw
from forebay.kernels.interface import (
    PAGE_TOKENS,
    EndWeights,
    KvLayout,
    LayerSettings,
    LayerWeights,
    Stack,
    StepBatch,
    Weight,
)
from forebay.kernels.quantised import QuantisedMatrix, rounded_inputs
from forebay.kernels.stored import StoredRows, stored_bits
from forebay.kernels.stored_blocks import plain_matrix, quantised_matrix

_BLOCK_VALUES = 1 << 20
"""Weights widened to fp32 at a time: 4 MiB stays in the cache, so a bf16 matrix is read from memory only once."""


@dataclass(frozen=True, slots=True)
class TorchWeight:
    """A matrix as it is, [N, K]."""

    values: Tensor
    rounds: bool = False
    """Whether what it is multiplied with is rounded to 8 bits first."""

    @property
    def shape(self) -> tuple[int, int]:
        outputs, inputs = self.values.shape
        return outputs, inputs

    @property
    def nbytes(self) -> int:
        return self.values.numel() * self.values.itemsize


class TorchKernels:
    """The portable backend; see `Kernels` for what each operation means."""

    name = "torch"
    keeps_quantised = False
    rounds_bf16 = False
    copy_bytes: CopyBytes = staticmethod(plain_copy)

    def __init__(self, activations: Activations = "fp32") -> None:
        self.activations = activations

    def pack(self, weight: Tensor, dtype: torch.dtype) -> Weight:
        _check_held(dtype)
        return TorchWeight(weight.detach().to(dtype, copy=True).contiguous())

    def pack_quantised(self, matrix: QuantisedMatrix, dtype: torch.dtype) -> Weight:
        packed = _own(self.pack(matrix.dequantised(torch.float32), dtype))
        return replace(packed, rounds=self.activations == "int8")

    def pack_stored(self, parts: Sequence[StoredRows], dtype: torch.dtype) -> Weight:
        if stored_bits(parts) is None:
            _check_held(dtype)
            return TorchWeight(plain_matrix(parts, dtype))
        return self.pack_quantised(quantised_matrix(parts), dtype)

    def settle(self, weights: Sequence[Weight]) -> None:
        """There is nothing to choose."""

    def linear(self, x: Tensor, weight: Weight, bias: Tensor | None = None, residual: Tensor | None = None) -> Tensor:
        own = _own(weight)
        out = _matmul(rounded_inputs(x) if own.rounds else x, own.values)
        if bias is not None:
            out += bias
        if residual is not None:
            out += residual
        return out

    def embed(self, ids: Tensor, weight: Weight) -> Tensor:
        return functional.embedding(ids, _own(weight).values).float()

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight

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
        kv_heads, dim = layout.kv_heads, layout.head_dim
        heads = qkv.view(qkv.shape[0], -1, dim)
        query_heads = heads.shape[1] - 2 * kv_heads
        q, k = heads[:, :query_heads], heads[:, query_heads : query_heads + kv_heads]
        if q_norm is not None:
            q.copy_(self.rms_norm(q, q_norm, eps))
        if k_norm is not None:
            k.copy_(self.rms_norm(k, k_norm, eps))
        angles = cos_sin[batch.positions.long()]
        _rotate(q, angles)
        _rotate(k, angles)
        page, offset = batch.slots.long() // PAGE_TOKENS, batch.slots.long() % PAGE_TOKENS
        keys, values = _views(pages, layer, layout)
        keys[page, :, :, offset] = k.to(layout.dtype)
        values[page, :, offset] = heads[:, query_heads + kv_heads :].to(layout.dtype)

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
        tokens, dim = qkv.shape[0], layout.head_dim
        query_heads = qkv.shape[1] // dim - 2 * layout.kv_heads
        queries = qkv.view(tokens, -1, dim)[:, :query_heads]
        out = torch.empty((tokens, query_heads, dim))
        keys, values = _views(pages, layer, layout)
        starts = batch.row_starts.tolist()
        for row, context in enumerate(batch.context.tolist()):
            tokens_of_row = slice(starts[row], starts[row + 1])
            numbers = batch.page_table[row, : -(-context // PAGE_TOKENS)].long()
            k = keys[numbers].permute(1, 2, 0, 3).flatten(2)[..., :context].float()
            v = values[numbers].transpose(0, 1).flatten(1, 2)[:, :context].float()
            out[tokens_of_row] = _attend(queries[tokens_of_row], k, v, scale, window)
        return out.view(tokens, query_heads * dim)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate) * up

    def stack(self, layers: tuple[LayerWeights, ...], settings: LayerSettings, ends: EndWeights) -> Stack | None:
        return None

    def draw(self, logits: Tensor, picks: Sequence[Pick]) -> list[int]:
        return draw(logits, picks)

    def copy_pages(self, pages: Tensor, pairs: list[tuple[int, int]]) -> None:
        for source, destination in pairs:
            pages[destination].copy_(pages[source])


def _check_held(dtype: torch.dtype) -> None:
    if dtype not in (torch.bfloat16, torch.float32):
        raise ValueError(f"weights are stored as bfloat16 or float32, not {dtype}")


def _own(weight: Weight) -> TorchWeight:
    if not isinstance(weight, TorchWeight):
        raise TypeError(f"a weight packed by another backend: {type(weight).__name__}")
    return weight


def _matmul(x: Tensor, matrix: Tensor) -> Tensor:
    """x [T, K] times matrixᵀ [K, N] in fp32, widening a bf16 matrix block by block."""
    if matrix.dtype == torch.float32:
        return functional.linear(x, matrix)
    out = torch.empty((x.shape[0], matrix.shape[0]))
    rows = max(1, _BLOCK_VALUES // matrix.shape[1])
    for start in range(0, matrix.shape[0], rows):
        out[:, start : start + rows] = functional.linear(x, matrix[start : start + rows].float())
    return out


def _rotate(heads: Tensor, angles: Tensor) -> None:
    """Rotate the pairs (d, d + D/2) of heads [T, n, D] in place by angles [T, D] (cosines, then sines)."""
    cos, sin = angles[:, None].chunk(2, dim=-1)
    first, second = heads.chunk(2, dim=-1)
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    heads.copy_(rotated)


def _views(pages: Tensor, layer: int, layout: KvLayout) -> tuple[Tensor, Tensor]:
    """K [P, G, D, 16] and V [P, G, 16, D] of one layer, sharing memory with the page store."""
    keys = pages[:, layer, 0].view(-1, layout.kv_heads, layout.head_dim, PAGE_TOKENS)
    values = pages[:, layer, 1].view(-1, layout.kv_heads, PAGE_TOKENS, layout.head_dim)
    return keys, values


def _attend(queries: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
    """queries [t, H, D] of the last t positions over k [G, D, S] and v [G, S, D] → [t, H, D]."""
    tokens, heads, dim = queries.shape
    kv_heads, _, length = k.shape
    grouped = queries.transpose(0, 1).reshape(kv_heads, -1, dim)
    scores = (grouped @ k * scale).view(kv_heads, heads // kv_heads, tokens, length)
    at = torch.arange(length - tokens, length)[:, None]
    key_at = torch.arange(length)[None]
    visible = key_at <= at
    if window is not None:
        visible &= key_at > at - window
    weights = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
    out = weights.view(kv_heads, -1, length) @ v
    return out.view(heads, tokens, dim).transpose(0, 1)
