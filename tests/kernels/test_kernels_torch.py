"""The torch backend against the definition of each operation, written out token by token in float64."""

from __future__ import annotations

import math

import pytest
import torch
from tests.kernels.kernel_cases import Sequences, angles, ints, random
from torch import Tensor

from forebay.kernels import PAGE_TOKENS
from forebay.kernels.torch_backend import TorchKernels


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(actual.double(), expected.double(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_linear_and_embed_use_the_stored_weights(portable: TorchKernels, dtype: torch.dtype) -> None:
    matrix, x, bias, residual = random(70, 33), random(5, 33, seed=1), random(70, seed=2), random(5, 70, seed=3)
    weight = portable.pack(matrix, dtype)
    stored = matrix.to(dtype).double()
    close(portable.linear(x, weight), x.double() @ stored.T)
    close(portable.linear(x, weight, bias, residual), x.double() @ stored.T + bias + residual)
    assert torch.equal(portable.embed(ints([69, 0, 3]), weight).double(), stored[[69, 0, 3]])
    assert weight.shape == (70, 33)
    assert weight.nbytes == 70 * 33 * dtype.itemsize


def test_linear_in_blocks_is_the_whole_product(portable: TorchKernels) -> None:
    matrix, x = random(3000, 700), random(2, 700, seed=1)
    weight = portable.pack(matrix, torch.bfloat16)
    close(portable.linear(x, weight), x.double() @ matrix.bfloat16().double().T, 1e-3)


def test_rms_norm_and_silu_mul(portable: TorchKernels) -> None:
    x, weight = random(3, 10), random(10, seed=1)
    rms = (x.double().pow(2).mean(dim=1, keepdim=True) + 1e-5).sqrt()
    close(portable.rms_norm(x, weight, 1e-5), x / rms * weight)
    gate, up = x[:, :5].double(), x[:, 5:].double()
    close(portable.silu_mul(x), gate / (1 + (-gate).exp()) * up)


def expected_heads(qkv: Tensor, positions: list[int], heads: int, norm: Tensor, eps: float) -> Tensor:
    """The first `heads` heads, normed and rotated, one pair of numbers at a time."""
    tokens, dim = qkv.shape[0], norm.shape[0]
    out = torch.empty(tokens, heads, dim, dtype=torch.float64)
    for t in range(tokens):
        for h in range(heads):
            head = qkv[t, h * dim : (h + 1) * dim].double()
            head = head / (head.square().mean() + eps).sqrt() * norm
            for d in range(dim // 2):
                angle = positions[t] * 10000.0 ** (-2 * d / dim)
                a, b = float(head[d]), float(head[d + dim // 2])
                out[t, h, d] = a * math.cos(angle) - b * math.sin(angle)
                out[t, h, d + dim // 2] = b * math.cos(angle) + a * math.sin(angle)
    return out


def test_rope_and_store_rotates_and_writes_the_pages(portable: TorchKernels) -> None:
    sequences = Sequences(1, kv_heads=2, head_dim=8, dtype=torch.float32)
    batch = sequences.step({0: 20})
    qkv, norm = random(20, (4 + 2 * 2) * 8), random(8, seed=1)
    before = qkv.clone()
    portable.rope_and_store(qkv, angles(32, 8), batch, sequences.pages, 1, sequences.layout, norm, norm, 1e-6)
    heads = qkv.view(20, 8, 8)
    close(heads[:, :6], expected_heads(before, list(range(20)), 6, norm, 1e-6))
    assert torch.equal(heads[:, 6:], before.view(20, 8, 8)[:, 6:])
    for token, slot in enumerate(batch.slots.tolist()):
        page, offset = divmod(slot, PAGE_TOKENS)
        keys = sequences.pages[page, 1, 0].view(2, 8, PAGE_TOKENS)
        values = sequences.pages[page, 1, 1].view(2, PAGE_TOKENS, 8)
        assert torch.equal(keys[:, :, offset], heads[token, 4:6])
        assert torch.equal(values[:, offset], heads[token, 6:])
    assert sequences.pages[:, 0].isnan().all(), "the other layer is left alone"


@pytest.mark.parametrize("window", [None, 1, 7])
def test_attention_sees_its_own_and_earlier_positions(portable: TorchKernels, window: int | None) -> None:
    sequences = Sequences(2, kv_heads=2, head_dim=8, dtype=torch.float32)
    seen: dict[int, list[Tensor]] = {0: [], 1: []}
    for step, counts in enumerate(({0: 18, 1: 3}, {1: 1, 0: 4})):
        batch = sequences.step(counts)
        tokens = sum(counts.values())
        qkv = random(tokens, (4 + 4) * 8, seed=step)
        portable.rope_and_store(qkv, angles(64, 8), batch, sequences.pages, 0, sequences.layout)
        out = portable.attention(qkv, batch, sequences.pages, 0, sequences.layout, 0.3, window)
        rows = [sequence for sequence, count in counts.items() for _ in range(count)]
        for t, sequence in enumerate(rows):
            seen[sequence].append(qkv[t].view(8, 8).double())
            visible = torch.stack(seen[sequence][-window if window else 0 :])
            for head in range(4):
                weights = (visible[:, 4 + head // 2] @ visible[-1, head] * 0.3).softmax(dim=0)
                close(out[t, head * 8 : head * 8 + 8], weights @ visible[:, 6 + head // 2])


def test_copy_pages_copies_all_layers(portable: TorchKernels) -> None:
    layout = Sequences(1, 1, 8, torch.float32).layout
    pages = layout.allocate(4).copy_(random(4, 2, 2, 128))
    before = pages.clone()
    portable.copy_pages(pages, [(0, 3), (1, 2)])
    assert torch.equal(pages, before[[0, 1, 1, 0]])


def test_a_weight_of_another_type_is_refused(portable: TorchKernels) -> None:
    with pytest.raises(ValueError, match="float16"):
        portable.pack(random(2, 2), torch.float16)
