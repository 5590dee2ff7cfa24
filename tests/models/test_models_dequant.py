"""Every decoder against the `gguf` package's, on random blocks: bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType

from forebay.core.ggml_types import GGML_TYPES, GgmlType
from forebay.models.dequant import DECODERS, dequantize_rows
from forebay.models.gguf_tensors import READABLE_TYPES

TYPES = {kind.name: kind for kind in GGML_TYPES.values()}
SCALES_AT = {"Q8_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
ROWS, COLUMNS = 37, 512


def random_blocks(kind: GgmlType) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """All bit patterns in the quantised values; scales that are finite numbers. [ROWS, bytes a row]"""
    rng = np.random.default_rng(5)
    if kind.block == 1:
        values = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
        raw = gguf.quants.quantize(values, GGMLQuantizationType[kind.name])
        return np.ascontiguousarray(raw).view(np.uint8).reshape(ROWS, -1)
    blocks = rng.integers(0, 256, (ROWS * COLUMNS // kind.block, kind.block_bytes), dtype=np.uint8)
    for at in SCALES_AT[kind.name]:
        blocks[:, at : at + 2] = rng.normal(size=(len(blocks), 1)).astype(np.float16).view(np.uint8)
    return blocks.reshape(ROWS, -1)


@pytest.mark.parametrize("name", list(DECODERS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decodes_as_gguf_does(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.models.dequant._PIECE_VALUES", 8 * COLUMNS)  # so that there are several, and a rest
    raw = random_blocks(TYPES[name])
    typed = raw.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))
    expected = torch.from_numpy(gguf.quants.dequantize(typed, GGMLQuantizationType[name]).reshape(ROWS, COLUMNS).copy())
    actual = torch.empty((ROWS, COLUMNS), dtype=dtype)
    dequantize_rows(raw, TYPES[name], actual)
    assert torch.equal(actual, expected.to(dtype))


def test_every_type_that_is_let_in_has_a_decoder() -> None:
    assert set(READABLE_TYPES) == set(DECODERS)


def test_type_table_is_ggmls() -> None:
    sizes = {kind.value: (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {number: (kind.name, kind.block, kind.block_bytes) for number, kind in GGML_TYPES.items()} == sizes
