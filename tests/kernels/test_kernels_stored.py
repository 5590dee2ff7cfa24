"""Packing from a file's rows: the very bytes that packing the same matrix from tensors gives, and nothing else read."""

from __future__ import annotations

import ctypes
import mmap
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from forebay.core.ggml_types import GGML_TYPES
from forebay.kernels import PLAIN_KINDS, STORED_BITS, StoredRows
from forebay.kernels.library import Format
from forebay.kernels.native import NativeKernels
from forebay.kernels.panels import NativeWeight
from forebay.kernels.stored_blocks import plain_matrix, quantised_matrix
from forebay.kernels.torch_backend import TorchKernels

TYPES = {kind.name: kind for kind in GGML_TYPES.values()}
SCALES_AT = {"Q8_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q4_K": (0, 2)}
DTYPES = [torch.float32, torch.bfloat16]


def blocks(kind: str, rows: int, inputs: int, *, seed: int = 0, size: float = 1.0) -> NDArray[np.uint8]:
    """All bit patterns in quantised values; scales and plain numbers are finite, some of them subnormal in fp16."""
    rng, its = np.random.default_rng(seed), TYPES[kind]
    if kind in PLAIN_KINDS:
        numbers = rng.normal(size=(rows, inputs)) * 10.0 ** rng.integers(-7, 4, (rows, inputs))
        if kind == "BF16":
            return torch.from_numpy(numbers).bfloat16().view(torch.uint8).numpy()
        return numbers.astype(np.float32 if kind == "F32" else np.float16).view(np.uint8)
    raw = rng.integers(0, 256, (rows * inputs // its.block, its.block_bytes), dtype=np.uint8)
    for at in SCALES_AT[kind]:
        scales = rng.normal(size=(len(raw), 1)) * 10.0 ** rng.integers(-7, 1, (len(raw), 1)) * size
        raw[:, at : at + 2] = scales.astype(np.float16).view(np.uint8)
    return raw.reshape(rows, -1)


def stored(
    kind: str, rows: int, inputs: int, *, seed: int = 0, shuffled: bool = False, size: float = 1.0
) -> StoredRows:
    order = np.random.default_rng(seed).permutation(rows) if shuffled else None
    return StoredRows(TYPES[kind], blocks(kind, rows, inputs, seed=seed, size=size), order)


def check(native: NativeKernels, parts: list[StoredRows], dtype: torch.dtype = torch.bfloat16) -> Format:
    """Compare with packing from tensors; returns the format."""
    if parts[0].kind.name in PLAIN_KINDS:
        expected = native.pack(plain_matrix(parts, dtype), dtype)
    else:
        expected = native.pack_quantised(quantised_matrix(parts), dtype)
    packed = native.pack_stored(parts, dtype)
    assert isinstance(packed, NativeWeight)
    assert isinstance(expected, NativeWeight)
    assert packed.shape == expected.shape
    assert packed.format is expected.format
    assert torch.equal(packed.panels, expected.panels)
    return packed.format


@pytest.mark.parametrize("rows", [1, 16, 75])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("kind", STORED_BITS)
def test_quantised(native: NativeKernels, kind: str, rows: int, shuffled: bool) -> None:
    form = check(native, [stored(kind, rows, 512, shuffled=shuffled)])
    assert form is {"Q8_0": Format.INT8_FP16, "Q4_K": Format.INT4_FP32}.get(kind, Format.INT4_FP16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inputs", [40, 256])
@pytest.mark.parametrize("kind", sorted(PLAIN_KINDS))
def test_plain(native: NativeKernels, kind: str, inputs: int, dtype: torch.dtype) -> None:
    check(native, [stored(kind, 75, inputs)], dtype)
    check(native, [stored(kind, 64, inputs, shuffled=True)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "kinds", [("Q4_0", "Q4_1", "Q4_0"), ("Q4_1", "Q4_K", "Q4_0"), ("Q8_0",) * 3, ("F16", "BF16", "F32")], ids="-".join
)
def test_parts_below_each_other_that_share_panels(
    native: NativeKernels, kinds: tuple[str, ...], dtype: torch.dtype
) -> None:
    rows = (37, 3, 50)
    parts = [stored(kind, n, 256, seed=n, shuffled=n == 50) for kind, n in zip(kinds, rows, strict=True)]
    check(native, parts, dtype)


@pytest.mark.parametrize(("scale", "form"), [(8188.0, Format.INT4_FP16), (8192.0, Format.INT4_FP32)])
def test_q4_0_whose_offsets_overflow_fp16(native: NativeKernels, scale: float, form: Format) -> None:
    part = stored("Q4_0", 75, 64)
    part.blocks[70, 18:20] = np.array([scale], dtype=np.float16).view(np.uint8)
    assert check(native, [stored("Q4_0", 20, 64), part]) is form


@pytest.mark.parametrize("scale", [float("inf"), float("-inf"), 0.0, -0.0, 2.0**-24, 65504.0])
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_scales_at_the_ends_of_fp16(native: NativeKernels, kind: str, scale: float) -> None:
    part = stored(kind, 20, 64)
    part.blocks[3, :2] = np.array([scale], dtype=np.float16).view(np.uint8)
    check(native, [part])


def test_q4_k_whose_scales_are_exact_as_fp16(native: NativeKernels) -> None:
    part = stored("Q4_K", 20, 256)
    for at in SCALES_AT["Q4_K"]:
        part.blocks[:, at : at + 2] = np.array([0.25], dtype=np.float16).view(np.uint8)
    assert check(native, [part]) is Format.INT4_FP16


@pytest.mark.parametrize("kind", [*STORED_BITS, *sorted(PLAIN_KINDS)])
def test_reads_nothing_outside_the_rows(native: NativeKernels, kind: str) -> None:
    raw = blocks(kind, 21, 256)
    region = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory = np.frombuffer(region, dtype=np.uint8)
    end = len(memory) - mmap.PAGESIZE
    for start in (mmap.PAGESIZE, end - raw.size):  # pages that can't be read are before the first and after the last
        here = memory[start : start + raw.size].reshape(raw.shape)
        here[:] = raw
        for guard in (0, end):
            assert protect(memory, guard, readable=False) == 0
        check(native, [StoredRows(TYPES[kind], here)])
        for guard in (0, end):
            protect(memory, guard, readable=True)


def protect(memory: NDArray[np.uint8], at: int, *, readable: bool) -> int:
    address = ctypes.c_void_p(memory.ctypes.data + at)
    return int(ctypes.CDLL(None).mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), 3 if readable else 0))


def test_threads_pack_at_the_same_time(native: NativeKernels) -> None:
    parts = [stored("Q4_0", 200, 512, seed=seed) for seed in range(8)]
    expected = [native.pack_quantised(quantised_matrix([part]), torch.bfloat16) for part in parts]
    with ThreadPoolExecutor(4) as pool:
        packed = list(pool.map(lambda part: native.pack_stored([part], torch.bfloat16), parts))
    for one, other in zip(packed, expected, strict=True):
        assert isinstance(one, NativeWeight)
        assert isinstance(other, NativeWeight)
        assert torch.equal(one.panels, other.panels)


@pytest.mark.parametrize("kind", ["Q4_1", "BF16"])
def test_the_portable_backend_packs_the_same_matrix(native: NativeKernels, portable: TorchKernels, kind: str) -> None:
    parts = [stored(kind, 20, 64, shuffled=True), stored(kind, 5, 64, seed=1)]
    ids = torch.arange(25, dtype=torch.int32)
    for dtype in DTYPES:
        if kind == "Q4_1" and dtype is torch.bfloat16:
            continue  # there it is rounded
        rows = [kernels.embed(ids, kernels.pack_stored(parts, dtype)) for kernels in (native, portable)]
        assert torch.equal(*rows)


def test_refuses_rows_that_no_backend_reads() -> None:
    good = blocks("Q4_0", 4, 64)
    with pytest.raises(ValueError, match="Q6_K have to be decoded"):
        StoredRows(TYPES["Q6_K"], np.zeros((4, 210), dtype=np.uint8))
    wrong: list[NDArray[Any]] = [good[:, :-1].copy(), good[::2], good.reshape(-1), good.astype(np.int8)]
    for broken in wrong:
        with pytest.raises(ValueError, match=r"no blocks|bytes row after row"):
            StoredRows(TYPES["Q4_0"], broken)
    for order in ([0, 1, 2], [0, 1, 2, 4], [-1, 0, 1, 2]):
        with pytest.raises(ValueError, match="order"):
            StoredRows(TYPES["Q4_0"], good, np.array(order))


def test_refuses_parts_that_dont_fit(native: NativeKernels, portable: TorchKernels) -> None:
    first = stored("Q4_0", 4, 64)
    for other in (stored("Q4_0", 4, 96), stored("Q8_0", 4, 64), stored("F16", 4, 64)):
        for kernels in (native, portable):
            with pytest.raises(ValueError, match="can't be below each other"):
                kernels.pack_stored([first, other], torch.bfloat16)
    for kernels in (native, portable):
        with pytest.raises(ValueError, match="bfloat16 or float32"):
            kernels.pack_stored([stored("F16", 4, 64)], torch.float16)
