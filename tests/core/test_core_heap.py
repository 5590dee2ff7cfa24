"""Freed memory goes back to the system."""

from __future__ import annotations

import psutil

from forebay.core.heap import trim_heap

MIB = 1 << 20


def test_freed_blocks_below_one_in_use_are_returned() -> None:
    process = psutil.Process()
    blocks = [bytes(4096) for _ in range(16_384)]
    last = blocks[-1]
    blocks.clear()
    held = process.memory_info().rss
    trim_heap()
    assert process.memory_info().rss < held - 32 * MIB
    assert last == bytes(4096)
