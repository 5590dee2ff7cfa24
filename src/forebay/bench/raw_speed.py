"""What the machine itself does with as many bytes: copying in memory, and reading files that are not in memory.

Destinations are warm: they have been written to before, so that no first touch of memory is in these figures.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import repeat
from pathlib import Path

import numpy as np

from forebay.fabric.checksum import address_of
from forebay.fabric.reading import cached_bytes

_READ = 8 << 20
_HUGE = 2 << 20
_DEPTH = 4


def memcpy_gbps(size: int, tries: int = 3) -> float:
    """GB/s of copying `size` bytes on one thread, the best of `tries`; bytes copied, not moved both ways."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    best = 0.0
    for _ in range(tries):
        began = time.perf_counter()
        ctypes.memmove(target.ctypes.data, source.ctypes.data, size)
        best = max(best, size / (time.perf_counter() - began) / 1e9)
    return best


def raw_reads_gbps(files: Sequence[Path], size: int) -> dict[str, float]:
    """GB/s of reading the first `size` bytes of `files`, in pieces of 8 MiB, none of them in memory before or after.

    `buffered` reads one piece after the other through the page cache, as dd does; `direct` past it, as dd does with
    iflag=direct; `direct_4` has four such reads under way, as fio has with iodepth=4. A way that the file system lacks
    is left out. Raises ValueError when the page cache can't be emptied of these files.
    """
    found = {}
    for name, flags, depth in (("buffered", 0, 1), ("direct", os.O_DIRECT, 1), ("direct_4", os.O_DIRECT, _DEPTH)):
        drop_page_cache(files)
        try:
            found[name] = _read(files, size, flags, depth)
        except OSError:
            if not flags:
                raise
    drop_page_cache(files)
    return found


def drop_page_cache(files: Sequence[Path]) -> None:
    """Leave nothing of these files in memory. Raises ValueError when most of one stays there."""
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            size = os.fstat(fd).st_size
            if 2 * cached_bytes(fd, 0, size) > size + mmap.PAGESIZE:
                raise ValueError(f"the system keeps {path} in memory, so reading it from disk can't be timed")
        finally:
            os.close(fd)


def _read(files: Sequence[Path], size: int, flags: int, depth: int) -> float:
    buffers = [_warm_memory() for _ in range(depth)]

    with ExitStack() as stack:
        fds = [os.open(path, os.O_RDONLY | flags) for path in files]
        for fd in fds:
            stack.callback(os.close, fd)
        threads = stack.enter_context(ThreadPoolExecutor(depth))
        pieces = iter(_pieces(fds, size))
        began = time.perf_counter()
        count = sum(threads.map(_drain, repeat(pieces, depth), buffers))
        return count / (time.perf_counter() - began) / 1e9


def _warm_memory() -> memoryview:
    """Room for one read, aligned and in huge memory pages as device pages are: a direct read needs fewer requests."""
    region = mmap.mmap(-1, _READ + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        region.madvise(mmap.MADV_HUGEPAGE)
    start = -address_of(memoryview(region)) % _HUGE
    memory = memoryview(region)[start : start + _READ]
    memory[:] = b"\1" * _READ
    return memory


def _drain(pieces: Iterator[tuple[int, int]], buffer: memoryview) -> int:
    """Read pieces until none is left; how many bytes came. Several threads take from one iterator."""
    return sum(os.preadv(fd, [buffer], offset) for fd, offset in pieces)


def _pieces(fds: Sequence[int], size: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for fd in fds:
        length = min(size, os.fstat(fd).st_size)
        found += [(fd, offset) for offset in range(0, length, _READ)]
        size -= length
    return found
