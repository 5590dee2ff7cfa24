"""Takes ggml's stored blocks apart into values, scales and offsets, for kernels that multiply with them as they are.

Types whose blocks don't fit (`QuantisedMatrix`) are dequantised instead: see dequant.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forebay.core.ggml_types import GgmlType
from forebay.kernels import QuantisedMatrix
from forebay.models.dequant import half_at, k_scales, nibbles

STORED_BITS: Final = {"Q4_0": 4, "Q4_1": 4, "Q4_K": 4, "Q8_0": 8}
"""Types that `unpack_rows` takes, with the bits of a value."""
_PIECE_VALUES: Final = 1 << 20

_Parts = tuple[Tensor, Tensor, Tensor | None]


def unpack_rows(raw: NDArray[np.uint8], kind: GgmlType) -> QuantisedMatrix:
    """A matrix of one of the types in `STORED_BITS`, raw [rows, bytes a row] in any row order.

    Its weights are exactly those that `dequantize_rows` computes in fp32.
    """
    unpack = _UNPACK[kind.name]
    columns = raw.shape[1] // kind.block_bytes * kind.block
    step = max(1, _PIECE_VALUES // columns)
    pieces: list[_Parts] = []
    for start in range(0, len(raw), step):
        piece = np.array(raw[start : start + step], copy=True)
        blocks = torch.from_numpy(piece).view(-1, kind.block_bytes)
        pieces.append(_by_rows(unpack(blocks), len(piece)))
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
