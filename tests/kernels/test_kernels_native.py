"""The native backend against the torch backend, over random shapes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.kernel_cases import Sequences, angles, ints, random
from torch import Tensor

from forebay.kernels.native import NativeKernels
from forebay.kernels.torch_backend import TorchKernels

DTYPES = st.sampled_from([torch.bfloat16, torch.float32])
quick = settings(max_examples=25, deadline=None, derandomize=True)


def close(actual: Tensor, expected: Tensor, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


@quick
@given(
    rows=st.integers(1, 40),
    outputs=st.integers(1, 150),
    inputs=st.integers(1, 130),
    dtype=DTYPES,
    with_bias=st.booleans(),
    with_residual=st.booleans(),
    rounded=st.booleans(),
)
def test_linear(
    native: NativeKernels,
    rounding_bf16: NativeKernels,
    portable: TorchKernels,
    rows: int,
    outputs: int,
    inputs: int,
    dtype: torch.dtype,
    with_bias: bool,
    with_residual: bool,
    rounded: bool,
) -> None:
    kernels = rounding_bf16 if rounded else native
    matrix, x = random(outputs, inputs) / inputs**0.5, random(rows, inputs, seed=1)
    bias = random(outputs, seed=2) if with_bias else None
    residual = random(rows, outputs, seed=3) if with_residual else None
    actual = kernels.linear(x, kernels.pack(matrix, dtype), bias, residual)
    taken = x.bfloat16().float() if rounded and dtype is torch.bfloat16 else x
    close(actual, portable.linear(taken, portable.pack(matrix, dtype), bias, residual))


@pytest.mark.parametrize("shape", [(192, 576), (1001, 300)])
def test_linear_of_many_rows(native: NativeKernels, portable: TorchKernels, shape: tuple[int, int]) -> None:
    matrix, x = random(*shape) / shape[1] ** 0.5, random(517, shape[1], seed=1)
    actual = native.linear(x, native.pack(matrix, torch.bfloat16))
    close(actual, portable.linear(x, portable.pack(matrix, torch.bfloat16)))


@quick
@given(outputs=st.integers(1, 70), inputs=st.integers(1, 40), dtype=DTYPES, count=st.integers(1, 40))
def test_embed(
    native: NativeKernels, portable: TorchKernels, outputs: int, inputs: int, dtype: torch.dtype, count: int
) -> None:
    matrix = random(outputs, inputs)
    ids = ints([(7 * i) % outputs for i in range(count)])
    weight = native.pack(matrix, dtype)
    assert torch.equal(native.embed(ids, weight), portable.embed(ids, portable.pack(matrix, dtype)))
    assert weight.shape == (outputs, inputs)


@quick
@given(rows=st.integers(1, 70), size=st.integers(1, 700), spread=st.floats(0.01, 50))
def test_row_operations(native: NativeKernels, portable: TorchKernels, rows: int, size: int, spread: float) -> None:
    x, weight = random(rows, size) * spread, random(size, seed=1)
    close(native.rms_norm(x, weight, 1e-5), portable.rms_norm(x, weight, 1e-5))
    gate_up = random(rows, 2 * size, seed=2) * spread
    close(native.silu_mul(gate_up), portable.silu_mul(gate_up))


def test_silu_of_extreme_gates(native: NativeKernels, portable: TorchKernels) -> None:
    gates = torch.tensor([[-1e30, -200.0, -88.0, -0.0, 0.0, 88.0, 200.0, 1e30]])
    gate_up = torch.cat((gates, torch.ones_like(gates)), dim=1)
    close(native.silu_mul(gate_up), portable.silu_mul(gate_up))


@quick
@given(
    steps=st.lists(st.dictionaries(st.integers(0, 2), st.integers(1, 150), min_size=1), min_size=1, max_size=3),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 7),
    head_dim=st.sampled_from([8, 24, 64, 72, 128, 256]),
    dtype=DTYPES,
    window=st.none() | st.integers(1, 300),
    with_norms=st.booleans(),
)
def test_rope_and_attention(
    native: NativeKernels,
    portable: TorchKernels,
    steps: list[dict[int, int]],
    kv_heads: int,
    group: int,
    head_dim: int,
    dtype: torch.dtype,
    window: int | None,
    with_norms: bool,
) -> None:
    sequences = Sequences(3, kv_heads, head_dim, dtype)
    pages, theirs, layout = sequences.pages, sequences.pages.clone(), sequences.layout
    table = angles(1024, head_dim)
    q_norm, k_norm = (random(head_dim, seed=8), random(head_dim, seed=9)) if with_norms else (None, None)
    for index, counts in enumerate(steps):
        batch = sequences.step(counts)
        qkv = random(sum(counts.values()), (group + 2) * kv_heads * head_dim, seed=index)
        expected = qkv.clone()
        native.rope_and_store(qkv, table, batch, pages, 1, layout, q_norm, k_norm, 1e-5)
        portable.rope_and_store(expected, table, batch, theirs, 1, layout, q_norm, k_norm, 1e-5)
        close(qkv, expected)
        # Rounding to bf16 may fall the other way, so compare as stored numbers and go on with the same ones.
        written = torch.unique(batch.slots // 16).long()
        torch.testing.assert_close(pages[written, 1], theirs[written, 1], atol=1e-2, rtol=1e-2, equal_nan=True)
        theirs[written] = pages[written]
        actual = native.attention(qkv, batch, pages, 1, layout, head_dim**-0.5, window)
        close(actual, portable.attention(qkv, batch, theirs, 1, layout, head_dim**-0.5, window))
    assert pages[:, 0].isnan().all(), "the other layer is left alone"


def test_values_are_rounded_as_torch_rounds(native: NativeKernels) -> None:
    sequences = Sequences(1, kv_heads=1, head_dim=64, dtype=torch.bfloat16)
    qkv = random(16, 3 * 64) * 100
    qkv[3, 128:131] = torch.tensor([float("inf"), 3.3961776e38, float("nan")])
    native.rope_and_store(qkv, angles(16, 64), sequences.step({0: 16}), sequences.pages, 0, sequences.layout)
    stored = sequences.pages[sequences.tables[0][0], 0, 1].view(16, 64)
    torch.testing.assert_close(stored, qkv[:, 128:].bfloat16(), atol=0, rtol=0, equal_nan=True)


def test_copy_pages(native: NativeKernels) -> None:
    pages = Sequences(1, 1, 8, torch.bfloat16).layout.allocate(5).copy_(random(5, 2, 2, 128))
    before = pages.clone()
    native.copy_pages(pages, [(4, 1), (0, 3)])
    native.copy_pages(pages, [])
    assert torch.equal(pages, before[[0, 4, 2, 0, 4]])


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 1 << 20), (64, (64 << 10) + 64), (8, 1 << 20), (0, (1 << 20) + 8), (0, 24)]
)
def test_copies_past_the_caches_are_copies(native: NativeKernels, offset: int, size: int) -> None:
    source = torch.randint(0, 256, (size + 64,), dtype=torch.uint8)
    room = torch.zeros(size + 256, dtype=torch.uint8)
    start = -room.data_ptr() % 64 + offset
    native.copy_bytes(room.data_ptr() + start, source.data_ptr() + 3, size)
    assert torch.equal(room[start : start + size], source[3 : size + 3])
    assert not room[:start].any()
    assert not room[start + size :].any()
