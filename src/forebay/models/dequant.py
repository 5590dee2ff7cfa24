"""Turns ggml's stored blocks into plain numbers. Not a matmul on quantised weights: that is a kernel's work.

Each decoder takes the raw blocks of a piece of a tensor, uint8 [blocks, bytes a block], and gives fp32 [blocks, values
a block]. `dequantize_rows` cuts a tensor into pieces that stay in the processor's cache and stores them in the dtype
wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forebay.core.ggml_types import GgmlType
from forebay.kernels.stored_blocks import half_at, k_scales, nibbles

_PIECE_VALUES: Final = 1 << 18
"""Values decoded at a time: 1 MiB of fp32."""


def dequantize_rows(raw: NDArray[np.uint8], kind: GgmlType, out: Tensor) -> None:
    """Decode a matrix of `kind` into `out` [rows, columns] of any float dtype.

    `raw` [rows, bytes a row] may be a view in any row order. The kind must be one of `DECODERS`.
    """
    decode = DECODERS[kind.name]
    rows, columns = out.shape
    step = max(1, _PIECE_VALUES // columns)
    for start in range(0, rows, step):
        piece = np.array(raw[start : start + step], copy=True)
        blocks = torch.from_numpy(piece).view(-1, kind.block_bytes)
        out[start : start + step] = decode(blocks).view(-1, columns)


def _f32(blocks: Tensor) -> Tensor:
    return blocks.view(torch.float32)


def _f16(blocks: Tensor) -> Tensor:
    return blocks.view(torch.float16).float()


def _bf16(blocks: Tensor) -> Tensor:
    return blocks.view(torch.bfloat16).float()


def _q8_0(blocks: Tensor) -> Tensor:
    return blocks[:, 2:].view(torch.int8) * half_at(blocks, 0)


def _q4_0(blocks: Tensor) -> Tensor:
    scale = half_at(blocks, 0)
    return torch.addcmul(-8.0 * scale, nibbles(blocks[:, 2:]).flatten(1).float(), scale)


def _q4_1(blocks: Tensor) -> Tensor:
    return torch.addcmul(half_at(blocks, 2), nibbles(blocks[:, 4:]).flatten(1).float(), half_at(blocks, 0))


def _q4_k(blocks: Tensor) -> Tensor:
    scales, offsets = k_scales(blocks)
    values = nibbles(blocks[:, 16:].reshape(-1, 4, 32)).view(-1, 8, 32)
    return torch.addcmul(-offsets, values.float(), scales).flatten(1)


def _q5_k(blocks: Tensor) -> Tensor:
    scales, offsets = k_scales(blocks)
    low = nibbles(blocks[:, 48:].reshape(-1, 4, 32)).view(-1, 8, 32)
    shifts = torch.arange(8, dtype=torch.uint8)[:, None]
    high = (blocks[:, None, 16:48] >> shifts) & 1
    return torch.addcmul(-offsets, (low | (high << 4)).float(), scales).flatten(1)


def _q6_k(blocks: Tensor) -> Tensor:
    low = nibbles(blocks[:, :128].reshape(-1, 2, 64)).view(-1, 2, 4, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None]
    high = (blocks[:, 128:192].view(-1, 2, 1, 32) >> shifts) & 3
    values = (low | (high << 4)).float().view(-1, 16, 16) - 32.0
    scales = blocks[:, 192:208].view(torch.int8) * half_at(blocks, 208)
    return (values * scales[..., None]).flatten(1)


DECODERS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
