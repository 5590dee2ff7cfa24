"""Takes rows of a model file apart in plain torch, for the portable backend: plain numbers as a matrix, and quantised
ones as values, scales and offsets. The native backend packs the same from the file itself (csrc/stored.cpp).

Types that are neither are decoded: see models/dequant.py, which shares the pieces of a block with this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from forebay.kernels.quantised import QuantisedMatrix, below_each_other
from forebay.kernels.stored import StoredRows, fused_shape

_PIECE_VALUES: Final = 1 << 20
_DTYPES: Final = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

_Parts = tuple[Tensor, Tensor, Tensor | None]


def plain_matrix(parts: Sequence[StoredRows], dtype: torch.dtype) -> Tensor:
    """Parts of plain numbers below each other, [N, K] rounded to `dtype`."""
    out = torch.empty(fused_shape(parts), dtype=dtype)
    row = 0
    for part in parts:
        for piece in _pieces(part):
            out[row : row + len(piece)] = piece.view(_DTYPES[part.kind.name])
            row += len(piece)
    return out


def quantised_matrix(parts: Sequence[StoredRows]) -> QuantisedMatrix:
    """Parts of types in `STORED_BITS`, of as many bits each, below each other, with exactly the weights that decoding
    them in fp32 gives. Scales are fp16 where all are exact as that.
    """
    fused_shape(parts)
    return below_each_other([_taken_apart(part) for part in parts])


def _pieces(rows: StoredRows) -> Iterator[Tensor]:
    """Copies of some rows at a time, in order."""
    step = max(1, _PIECE_VALUES // rows.shape[1])
    for start in range(0, rows.shape[0], step):
        here = slice(start, start + step)
        yield torch.from_numpy(np.array(rows.blocks[here if rows.order is None else rows.order[here]], copy=True))


def _taken_apart(rows: StoredRows) -> QuantisedMatrix:
    unpack = _UNPACK[rows.kind.name]
    pieces = [_by_rows(unpack(piece.view(-1, rows.kind.block_bytes)), len(piece)) for piece in _pieces(rows)]
    values, scales, offsets = zip(*pieces, strict=True)
    if offsets[0] is None:
        return QuantisedMatrix(torch.cat(values), torch.cat(scales).half(), None)
    return QuantisedMatrix(torch.cat(values), *_halved(torch.cat(scales), torch.cat(offsets)))


def _halved(scales: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """As fp16 where that loses nothing: Q4_K's are products that need more."""
    halves = scales.half(), offsets.half()
    lossless = torch.equal(halves[0].float(), scales) and torch.equal(halves[1].float(), offsets)
    return halves if lossless else (scales, offsets)


def _by_rows(parts: _Parts, rows: int) -> _Parts:
    values, scales, offsets = parts
    return values.reshape(rows, -1), scales.reshape(rows, -1), None if offsets is None else offsets.reshape(rows, -1)


def half_at(blocks: Tensor, offset: int) -> Tensor:
    """The f16 at a byte offset of each block, as fp32 [blocks, 1]."""
    return blocks[:, offset : offset + 2].contiguous().view(torch.float16).float()


def nibbles(packed: Tensor) -> Tensor:
    """uint8 [..., n] → [..., 2, n]: low halves, then high halves."""
    return torch.stack((packed & 15, packed >> 4), dim=-2)


def k_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and offset of the eight sub-blocks of Q4_K and Q5_K, fp32 [blocks, 8, 1] each.

    Twelve bytes hold eight 6-bit scales and eight 6-bit offsets: four of each in the low six bits of bytes 0 to 7, the
    other four in the halves of bytes 8 to 11, completed by the top two bits of bytes 0 to 7.
    """
    low_scales, low_offsets, halves = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat((low_scales & 63, (halves & 15) | (low_scales >> 6 << 4)), dim=1)
    offsets = torch.cat((low_offsets & 63, (halves >> 4) | (low_offsets >> 6 << 4)), dim=1)
    return (scales * half_at(blocks, 0))[..., None], (offsets * half_at(blocks, 2))[..., None]


def _q8_0(blocks: Tensor) -> _Parts:
    return blocks[:, 2:].view(torch.int8), half_at(blocks, 0), None


def _q4_0(blocks: Tensor) -> _Parts:
    scales = half_at(blocks, 0)
    return nibbles(blocks[:, 2:]), scales, -8.0 * scales


def _q4_1(blocks: Tensor) -> _Parts:
    return nibbles(blocks[:, 4:]), half_at(blocks, 0), half_at(blocks, 2)


def _q4_k(blocks: Tensor) -> _Parts:
    scales, offsets = k_scales(blocks)
    return nibbles(blocks[:, 16:].reshape(-1, 4, 32)), scales, -offsets


_UNPACK: Final[dict[str, Callable[[Tensor], _Parts]]] = {"Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_1": _q4_1, "Q4_K": _q4_k}
