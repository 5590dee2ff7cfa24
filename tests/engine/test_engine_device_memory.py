"""The memory of device pages: the layout's shape, where it begins, and that all of it can be used."""

from __future__ import annotations

import mmap

import pytest
import torch

from forebay.engine.device_memory import allocate_pages
from forebay.kernels import KvLayout

LAYOUT = KvLayout(layers=3, kv_heads=2, head_dim=8, dtype=torch.bfloat16)


@pytest.mark.parametrize("pages", [1, 7, 1000])
def test_pages_lie_one_behind_the_other_from_a_large_boundary_on(pages: int) -> None:
    store = allocate_pages(LAYOUT, pages)
    assert store.shape == LAYOUT.allocate(pages).shape
    assert store.dtype == LAYOUT.dtype
    assert store.is_contiguous()
    assert store.data_ptr() % (2 << 20) == 0
    assert store[0].nbytes == LAYOUT.page_bytes
    for number in range(pages):
        store[number] = number % 256
    assert [int(store[number].float().mean()) for number in range(pages)] == [number % 256 for number in range(pages)]


def test_it_works_without_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(mmap.mmap):
        def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Plain)
    store = allocate_pages(LAYOUT, 3).fill_(1)
    assert float(store.float().sum()) == store.numel()
