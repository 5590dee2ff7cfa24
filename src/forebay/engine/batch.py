"""Turns the rows of a step plan into the tensors that kernels read. No model and no memory of its own."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from forebay.kernels import PAGE_TOKENS, StepBatch
from forebay.scheduling import Row

Ints = npt.NDArray[np.int32]


def build_batch(rows: Seq[Row]) -> tuple[Tensor, StepBatch]:
    """Ids int32 [T] and the batch of `rows`, in their order. Every row's sequence holds pages for all of its tokens."""
    lengths = np.fromiter((row.tokens for row in rows), np.int32, len(rows))
    context = np.fromiter((row.start + row.tokens for row in rows), np.int32, len(rows))
    row_starts = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(lengths, out=row_starts[1:])
    table = _page_table(rows, context)
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


def _page_table(rows: Seq[Row], context: Ints) -> Ints:
    counts = -(-context // PAGE_TOKENS)
    table = np.zeros((len(rows), int(counts.max())), np.int32)
    for row, entry, count in zip(rows, table, counts.tolist(), strict=True):
        pages = row.sequence.pages
        entry[:count] = pages.numbers[:count]
        # Out of the window: attention gives these no weight, but may read them, so what they name must hold numbers.
        entry[: pages.start] = pages.numbers[pages.start]
    return table


def _token_ids(rows: Seq[Row]) -> list[int]:
    ids: list[int] = []
    for row in rows:
        if row.tokens == 1:
            ids.append(row.sequence.token_at(row.start))
        else:
            ids.extend(row.sequence.all_ids[row.start : row.start + row.tokens])
    return ids
