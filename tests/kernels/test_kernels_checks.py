"""What the native backend refuses: anything that would make it read or write memory that is not the tensors'."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.kernels.kernel_cases import Sequences, angles, ints, random
from torch import Tensor

from forebay.kernels import KvLayout, StepBatch
from forebay.kernels.native import NativeKernels
from forebay.kernels.torch_backend import TorchKernels


def test_linear_refuses_what_does_not_fit(native: NativeKernels, portable: TorchKernels) -> None:
    weight = native.pack(random(10, 8), torch.bfloat16)
    for wrong in (random(2, 7), random(2, 8).double(), random(8, 2).T, random(8)):
        with pytest.raises(ValueError, match="x must be"):
            native.linear(wrong, weight)
    with pytest.raises(ValueError, match="bias must be"):
        native.linear(random(2, 8), weight, bias=random(9))
    with pytest.raises(ValueError, match="residual must be"):
        native.linear(random(2, 8), weight, residual=random(1, 10))
    with pytest.raises(TypeError, match="another backend"):
        native.linear(random(2, 8), portable.pack(random(10, 8), torch.bfloat16))


def test_pack_refuses_other_types(native: NativeKernels) -> None:
    with pytest.raises(ValueError, match="float16"):
        native.pack(random(2, 2), torch.float16)
    with pytest.raises(ValueError, match="float matrix"):
        native.pack(ints([[1]]), torch.float32)


@pytest.mark.parametrize("token", [-1, 10])
def test_embed_refuses_ids_outside_the_vocabulary(native: NativeKernels, token: int) -> None:
    weight = native.pack(random(10, 8), torch.bfloat16)
    with pytest.raises(ValueError, match=f"token id {token} at 1"):
        native.embed(ints([0, token]), weight)
    with pytest.raises(ValueError, match="ids must be"):
        native.embed(torch.tensor([0]), weight)


def test_row_operations_refuse_other_types(native: NativeKernels) -> None:
    with pytest.raises(ValueError, match="x must be"):
        native.rms_norm(random(2, 4).bfloat16(), random(4), 1e-5)
    with pytest.raises(ValueError, match="weight must be"):
        native.rms_norm(random(2, 4), random(3), 1e-5)
    with pytest.raises(ValueError, match="gate_up must be"):
        native.silu_mul(random(2, 5))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("positions", torch.arange(4), "positions must be torch.int32"),
        ("positions", ints([0, 1, 2, 90]), "position 90 has no angles"),
        ("row_starts", ints([0, 3]), "from 0 to 4"),
        ("row_starts", ints([0, 2, 4]), "row_starts must be"),
        ("context", ints([3]), "4 tokens of a context of 3"),
        ("context", ints([32 * 16 + 1]), "32 pages in its table"),
        ("slots", ints([0, 1, 2, 32 * 16]), "page 32"),
        ("slots", ints([0, 1, 2, -1]), "slots holds -1"),
        ("page_table", ints([[32] * 32]), "page 32"),
        ("page_table", ints([[-3] * 32]), "page_table holds -3"),
    ],
)
def test_a_batch_must_stay_within_its_memory(native: NativeKernels, field: str, value: Tensor, message: str) -> None:
    sequences = Sequences(1, kv_heads=1, head_dim=8, dtype=torch.bfloat16)
    batch = replace(sequences.step({0: 4}), **{field: value})
    with pytest.raises(ValueError, match=message):
        native.rope_and_store(random(4, 24), angles(64, 8), batch, sequences.pages, 0, sequences.layout)
    assert sequences.pages.isnan().all(), "nothing was written"


def attempt(native: NativeKernels, batch: StepBatch, qkv: Tensor, pages: Tensor, layer: int, layout: KvLayout) -> None:
    native.attention(qkv, batch, pages, layer, layout, 1.0, None)


def test_attention_refuses_another_store_or_layer(native: NativeKernels) -> None:
    sequences = Sequences(1, kv_heads=2, head_dim=8, dtype=torch.bfloat16)
    batch, layout, pages = sequences.step({0: 1}), sequences.layout, sequences.pages
    qkv = random(1, 8 * 8)
    attempt(native, batch, qkv, pages, 0, layout)
    with pytest.raises(ValueError, match="layer 2 of 2"):
        attempt(native, batch, qkv, pages, 2, layout)
    with pytest.raises(ValueError, match="pages must be"):
        attempt(native, batch, qkv, pages.float(), 0, layout)
    with pytest.raises(ValueError, match="pages must be"):
        attempt(native, batch, qkv, pages, 0, replace(layout, kv_heads=1))
    with pytest.raises(ValueError, match="not heads"):
        attempt(native, batch, random(1, 7 * 8), pages, 0, layout)
    with pytest.raises(ValueError, match="sees nothing"):
        native.attention(qkv, batch, pages, 0, layout, 1.0, 0)
    with pytest.raises(ValueError, match="head norm must be"):
        native.rope_and_store(qkv, angles(4, 8), batch, pages, 0, layout, q_norm=random(7))


def test_copy_pages_refuses_pages_that_are_not_there(native: NativeKernels) -> None:
    pages = KvLayout(1, 1, 8, torch.float32).allocate(3)
    for pair in ((0, 3), (-1, 0)):
        with pytest.raises(ValueError, match="outside the 3 pages"):
            native.copy_pages(pages, [pair])
    with pytest.raises(ValueError, match="not contiguous"):
        native.copy_pages(pages[:, :, :1], [(0, 1)])
