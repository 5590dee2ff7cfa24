"""Turns the rows of a step plan into the tensors that kernels read. No model and no memory of its own."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np
import torch
from torch import Tensor

from forebay.engine.device_pages import Places
from forebay.kernels import PAGE_TOKENS, StepBatch
from forebay.scheduling import Row


def build_batch(rows: Seq[Row], places: Places | None = None) -> tuple[Tensor, StepBatch]:
    """Ids int32 [T] and the batch of `rows`, in their order. Every row's sequence holds pages for all of its tokens.

    `places` says where pages lie that don't lie at their numbers.
    """
    ragged = any(row.tokens != 1 for row in rows)
    return _ragged_batch(rows, places) if ragged else _decode_batch(rows, places)


def _decode_batch(rows: Seq[Row], places: Places | None) -> tuple[Tensor, StepBatch]:
    """One token a row: numbers are put together as a list and become one tensor. The caches are cold after a step, so
    each array operation saved is some microseconds of the next.
    """
    count = len(rows)
    positions = [row.start for row in rows]
    ids = [row.sequence.token_at(row.start) for row in rows]
    width = max(positions) // PAGE_TOKENS + 1
    table = [number for row in rows for number in _pages(row, width)]
    last = [table[index * width + position // PAGE_TOKENS] for index, position in enumerate(positions)]
    if places is not None:
        last = [places.at[number] for number in last]
    slots = [place * PAGE_TOKENS + position % PAGE_TOKENS for place, position in zip(last, positions, strict=True)]
    context = [position + 1 for position in positions]
    numbers = torch.tensor([*ids, *positions, *slots, *context, *range(count + 1), *table], dtype=torch.int32)
    parts = numbers.split_with_sizes([count, count, count, count, count + 1, count * width])
    page_table = parts[5] if places is None else places.table.index_select(0, parts[5])
    return parts[0], StepBatch(
        positions=parts[1],
        slots=parts[2],
        context=parts[3],
        row_starts=parts[4],
        page_table=page_table.view(count, width),
    )


def _pages(row: Row, width: int) -> list[int]:
    """A line of the page table."""
    pages = row.sequence.pages
    held = -(-(row.start + row.tokens) // PAGE_TOKENS)
    numbers = pages.numbers[:held] + [0] * (width - held)
    # Out of the window: attention gives these no weight, but may read them, so what they name must hold numbers.
    numbers[: pages.start] = [numbers[pages.start]] * pages.start
    return numbers


def _ragged_batch(rows: Seq[Row], places: Places | None) -> tuple[Tensor, StepBatch]:
    lengths = np.fromiter((row.tokens for row in rows), np.int32, len(rows))
    context = np.fromiter((row.start + row.tokens for row in rows), np.int32, len(rows))
    row_starts = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(lengths, out=row_starts[1:])
    width = -(-int(context.max()) // PAGE_TOKENS)
    table = np.array([_pages(row, width) for row in rows], np.int32)
    if places is not None:
        table = places.table.numpy()[table]
    row_of = np.repeat(np.arange(len(rows), dtype=np.int32), lengths)
    first = (context - lengths)[row_of] - row_starts[:-1][row_of]
    positions = np.arange(row_starts[-1], dtype=np.int32) + first
    slots = table[row_of, positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
    ids = torch.tensor(_token_ids(rows), dtype=torch.int32)
    return ids, StepBatch(
        positions=torch.from_numpy(positions),
        row_starts=torch.from_numpy(row_starts),
        context=torch.from_numpy(context),
        page_table=torch.from_numpy(table),
        slots=torch.from_numpy(slots),
    )


def _token_ids(rows: Seq[Row]) -> list[int]:
    ids: list[int] = []
    for row in rows:
        if row.tokens == 1:
            ids.append(row.sequence.token_at(row.start))
        else:
            ids.extend(row.sequence.all_ids[row.start : row.start + row.tokens])
    return ids
