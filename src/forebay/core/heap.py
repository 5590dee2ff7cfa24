"""Gives memory that was freed back to the system. Loading a model frees much that the allocator otherwise keeps."""

from __future__ import annotations

import ctypes
import gc


def trim_heap() -> None:
    """Collect garbage and return what is free in the allocator's arenas; a few milliseconds. Without glibc only the
    first.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
