"""Sequences with pages, and steps over them, for the kernel tests. No expectations of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from forebay.kernels import PAGE_TOKENS, KvLayout, StepBatch

MOST_PAGES = 32


def ints(values: list[int] | list[list[int]]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


class Sequences:
    """Some sequences that grow step by step, each on its own shuffled pages of one store of two layers."""

    def __init__(self, count: int, kv_heads: int, head_dim: int, dtype: torch.dtype, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        numbers = torch.randperm(count * MOST_PAGES, generator=generator).tolist()
        self.tables = [numbers[i * MOST_PAGES : (i + 1) * MOST_PAGES] for i in range(count)]
        self.layout = KvLayout(2, kv_heads, head_dim, dtype)
        # What was never written must never be read: NaN would show.
        self.pages = self.layout.allocate(count * MOST_PAGES).fill_(float("nan"))
        self.lengths = [0] * count

    def step(self, counts: dict[int, int]) -> StepBatch:
        """The batch that adds counts[s] tokens to sequence s, rows in the order of `counts`."""
        positions: list[int] = []
        slots: list[int] = []
        starts = [0]
        for sequence, count in counts.items():
            begin = self.lengths[sequence]
            self.lengths[sequence] += count
            for position in range(begin, begin + count):
                page = self.tables[sequence][position // PAGE_TOKENS]
                positions.append(position)
                slots.append(page * PAGE_TOKENS + position % PAGE_TOKENS)
            starts.append(len(positions))
        return StepBatch(
            positions=ints(positions),
            row_starts=ints(starts),
            context=ints([self.lengths[s] for s in counts]),
            page_table=ints([self.tables[s] for s in counts]),
            slots=ints(slots),
        )


def angles(positions: int, head_dim: int) -> Tensor:
    """Cosines, then sines, of rotary embedding [positions, head_dim]."""
    frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
    turns = torch.arange(positions)[:, None] * frequencies
    return torch.cat((turns.cos(), turns.sin()), dim=1)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
