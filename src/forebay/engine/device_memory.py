"""The memory that device pages lie in: aligned, and in huge pages where the system has any. No book-keeping.

The first touch of memory is what a load from disk into a new process mostly waits for. In pages of 4 KiB it goes at 0.5
to 1.1 GB/s on a virtual machine, in huge ones at 3 to 5.
"""

from __future__ import annotations

import logging
import mmap

import torch
from torch import Tensor

from forebay.kernels import KvLayout

log = logging.getLogger(__name__)

_HUGE = 2 << 20
"""A huge page of most systems; memory that begins at a multiple of it also suits direct reads from disk."""


def allocate_pages(layout: KvLayout, pages: int) -> Tensor:
    """A page store as `KvLayout.allocate` makes it, shape [P, L, 2, G * 16 * D], that begins at a multiple of 2 MiB.

    Memory is committed as it is first written, 2 MiB at a time where the system allows it. Raises OSError when there is
    no room for so much in the address space.
    """
    size = pages * layout.page_bytes
    region = mmap.mmap(-1, size + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        region.madvise(mmap.MADV_HUGEPAGE)
    except OSError as error:
        log.debug("device pages lie in small memory pages: %s", error.strerror)
    store = torch.frombuffer(region, dtype=torch.uint8)
    start = -store.data_ptr() % _HUGE
    return store[start : start + size].view(layout.dtype).view(pages, layout.layers, 2, -1)
