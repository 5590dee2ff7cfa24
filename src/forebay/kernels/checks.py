"""Checks that stand between a wrong tensor and memory that is not ours. Cheap enough for every call; no arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from forebay.kernels.interface import PAGE_TOKENS, KvLayout, StepBatch


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A checked `StepBatch` as addresses; it holds the batch, so that they stay valid."""

    batch: StepBatch
    tokens: int
    rows: int
    positions: int
    slots: int
    row_starts: int
    context: int
    page_table: int
    table_stride: int
    positions_end: int
    """One more than the largest position."""
    pages_end: int
    """One more than the largest page number."""


def check_tensor(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `tensor` is a contiguous CPU tensor of this type and shape."""
    if tensor.dtype is not dtype or tensor.shape != shape or not tensor.is_contiguous() or not tensor.is_cpu:
        layout = "" if tensor.is_contiguous() else ", not contiguous"
        raise ValueError(
            f"{name} must be {dtype} {shape} in memory order on the CPU, not "
            f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}{layout}"
        )


def check_kv(shape: tuple[int, int], step: PreparedBatch, pages: Tensor, layer: int, layout: KvLayout) -> int:
    """Check pages, layer and the shape of a qkv against each other; returns the number of query heads."""
    dim, kv_heads = layout.head_dim, layout.kv_heads
    tokens, columns = shape
    if tokens != step.tokens:
        raise ValueError(f"the batch has {step.tokens} tokens, not {tokens}")
    check_tensor("pages", pages, layout.dtype, (pages.shape[0], layout.layers, 2, PAGE_TOKENS * kv_heads * dim))
    if step.pages_end > pages.shape[0]:
        raise ValueError(f"the batch names page {step.pages_end - 1}, but there are {pages.shape[0]}")
    if not 0 <= layer < layout.layers:
        raise ValueError(f"layer {layer} of {layout.layers}")
    query_heads, rest = divmod(columns - 2 * kv_heads * dim, dim)
    if dim % 8 or rest or query_heads < 1 or query_heads % kv_heads:
        raise ValueError(f"{columns} columns of qkv are not heads of {dim} on {kv_heads} KV heads")
    return query_heads


def prepare_batch(batch: StepBatch) -> PreparedBatch:
    """Check a batch's types, shapes and numbers; raises ValueError where following it would leave its memory."""
    tokens, rows = batch.positions.shape[0], batch.context.shape[0]
    check_tensor("positions", batch.positions, torch.int32, (tokens,))
    check_tensor("slots", batch.slots, torch.int32, (tokens,))
    check_tensor("row_starts", batch.row_starts, torch.int32, (rows + 1,))
    check_tensor("context", batch.context, torch.int32, (rows,))
    check_tensor("page_table", batch.page_table, torch.int32, (rows, batch.page_table.shape[-1]))
    _check_rows(batch.row_starts.tolist(), batch.context.tolist(), tokens, batch.page_table.shape[1])
    return PreparedBatch(
        batch=batch,
        tokens=tokens,
        rows=rows,
        positions=batch.positions.data_ptr(),
        slots=batch.slots.data_ptr(),
        row_starts=batch.row_starts.data_ptr(),
        context=batch.context.data_ptr(),
        page_table=batch.page_table.data_ptr(),
        table_stride=batch.page_table.shape[1],
        positions_end=_end("positions", batch.positions),
        pages_end=max(_end("page_table", batch.page_table), -(-_end("slots", batch.slots) // PAGE_TOKENS)),
    )


def _check_rows(starts: list[int], contexts: list[int], tokens: int, table_width: int) -> None:
    if starts[0] != 0 or starts[-1] != tokens:
        raise ValueError(f"row_starts must go from 0 to {tokens}, not from {starts[0]} to {starts[-1]}")
    for row, context in enumerate(contexts):
        length = starts[row + 1] - starts[row]
        if not 0 <= length <= context:
            raise ValueError(f"row {row} has {length} tokens of a context of {context}")
        if context > table_width * PAGE_TOKENS:
            raise ValueError(f"row {row} has a context of {context}, but {table_width} pages in its table")


def _end(name: str, tensor: Tensor) -> int:
    """One more than the largest number; none may be negative."""
    if tensor.numel() == 0:
        return 0
    low, high = torch.aminmax(tensor)
    if int(low) < 0:
        raise ValueError(f"{name} holds {int(low)}")
    return int(high) + 1
