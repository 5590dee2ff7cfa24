"""Rows of a matrix as a model file stores them, between the files' readers and the backends. No copy, no arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forebay.core.ggml_types import GgmlType

PLAIN_KINDS: Final = frozenset({"F32", "F16", "BF16"})
"""Types that hold numbers as they are."""
STORED_BITS: Final = {"Q4_0": 4, "Q4_1": 4, "Q4_K": 4, "Q8_0": 8}
"""Quantised types that backends compute on as they are stored, with the bits of a value."""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows [N, K] of one of `PLAIN_KINDS` or `STORED_BITS`."""

    kind: GgmlType
    blocks: NDArray[np.uint8]
    """[N, bytes a row], row after row in memory, often a file's mapping."""
    order: NDArray[np.intp] | None = None
    """[N]: row n of the matrix is row order[n] of `blocks`; None: they are in order."""

    def __post_init__(self) -> None:
        """Raises ValueError where following this would leave the memory of `blocks`."""
        if self.kind.name not in PLAIN_KINDS and self.kind.name not in STORED_BITS:
            raise ValueError(f"rows of type {self.kind.name} have to be decoded first")
        blocks = self.blocks
        if blocks.ndim != 2 or blocks.dtype != np.uint8 or not blocks.flags.c_contiguous:
            raise ValueError(f"stored rows are bytes row after row, not {blocks.dtype} {blocks.shape}")
        if not blocks.size or blocks.shape[1] % self.kind.block_bytes:
            raise ValueError(f"{blocks.shape[0]} rows of {blocks.shape[1]} bytes are no blocks of {self.kind.name}")
        order = self.order
        if order is not None and (order.shape != blocks.shape[:1] or order.min() < 0 or order.max() >= len(blocks)):
            raise ValueError(f"the order of {len(blocks)} rows names others, or too few")

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K): outputs, inputs."""
        return self.blocks.shape[0], self.blocks.shape[1] // self.kind.block_bytes * self.kind.block

    def addresses(self) -> NDArray[np.uint64]:
        """Of the rows, [N]; valid while `blocks` is."""
        rows, row_bytes = self.blocks.shape
        numbers = np.arange(rows) if self.order is None else self.order
        addresses: NDArray[np.uint64] = numbers.astype(np.uint64) * np.uint64(row_bytes)
        return addresses + np.uint64(self.blocks.ctypes.data)


def fused_shape(parts: Sequence[StoredRows]) -> tuple[int, int]:
    """(N, K) of the parts below each other. Raises ValueError when they are of different K, or some quantised to other
    bits than the rest.
    """
    if len({part.shape[1] for part in parts}) != 1 or len({STORED_BITS.get(part.kind.name) for part in parts}) != 1:
        described = ", ".join(f"{part.kind.name} {part.shape}" for part in parts)
        raise ValueError(f"matrices that can't be below each other: {described}")
    return sum(part.shape[0] for part in parts), parts[0].shape[1]


def stored_bits(parts: Sequence[StoredRows]) -> int | None:
    """The bits of the parts' values; None: they are plain numbers."""
    return STORED_BITS.get(parts[0].kind.name)
