"""Reads a range of a file into pieces of memory: past the system's page cache where that is faster. It knows no pages.

Direct reads cost no copy and leave the page cache to others, but they need aligned memory, and what the system holds in
memory already comes faster from there.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from forebay.fabric.checksum import address_of
from forebay.fabric.pool_layout import ALIGNMENT

log = logging.getLogger(__name__)

_MOST_PIECES = 512
"""Pieces handed to one system call; Linux allows 1,024."""
_CACHESTAT = 451
"""The system call's number, the same on every architecture that we run on; Linux has it from 6.5 on."""

_libc = ctypes.CDLL(None, use_errno=True)


def read_range(path: Path, fd: int, pieces: Sequence[memoryview], offset: int) -> int:
    """Fill `pieces` one after the other from `offset` of a file on; returns how many bytes came, fewer at its end.

    `fd` is open on the file at `path`. Any thread may read. Raises OSError when the disk fails.
    """
    size = sum(map(len, pieces))
    cached = cached_bytes(fd, offset, size)
    if 2 * cached < size and _suits(pieces, offset):
        try:
            return _read_directly(path, pieces, offset)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
                raise
            log.debug("a direct read was refused: %s", error.strerror)
    if cached < size:
        os.posix_fadvise(fd, offset, size, os.POSIX_FADV_WILLNEED)
    return read_all(fd, pieces, offset)


def cached_bytes(fd: int, offset: int, size: int) -> int:
    """How much of a range lies in the system's page cache, in whole memory pages, where the system can say so.

    Half of the range where it can't: then nothing is read directly, and all is asked for ahead.
    """
    wanted = (ctypes.c_uint64 * 2)(offset, size)
    found = (ctypes.c_uint64 * 5)()
    if _libc.syscall(ctypes.c_long(_CACHESTAT), ctypes.c_uint(fd), wanted, found, ctypes.c_uint(0)) != 0:
        return -(-size // 2)
    return int(found[0]) * mmap.PAGESIZE


def _read_directly(path: Path, pieces: Sequence[memoryview], offset: int) -> int:
    """The file is opened for this read alone, which takes microseconds, so that there are no more open files."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    try:
        return read_all(fd, pieces, offset)
    finally:
        os.close(fd)


def _suits(pieces: Sequence[memoryview], offset: int) -> bool:
    """Whether a direct read may go there: everything at multiples of 4096, which covers the disks there are."""
    return offset % ALIGNMENT == 0 and all(
        len(piece) % ALIGNMENT == 0 and address_of(piece) % ALIGNMENT == 0 for piece in pieces
    )


def read_all(fd: int, pieces: Sequence[memoryview], offset: int) -> int:
    """Fill `pieces` from `offset` on, in as few calls as the system needs; returns how many bytes came."""
    total = 0
    while pieces:
        count = os.preadv(fd, pieces[:_MOST_PIECES], offset + total)
        if count == 0:
            break
        total += count
        pieces = after(pieces, count)
    return total


def after(pieces: Sequence[memoryview], done: int) -> list[memoryview]:
    """What is left of `pieces` behind their first `done` bytes."""
    for i, piece in enumerate(pieces):
        if done < len(piece):
            return [piece[done:], *pieces[i + 1 :]]
        done -= len(piece)
    return []
