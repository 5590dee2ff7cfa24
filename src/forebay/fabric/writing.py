"""Writes pieces of memory to a range of a file: past the system's page cache where that can be. It knows no pages.

A direct write takes a quarter of the processor's time of a buffered one (which copies, and whose bytes the system
writes out later), and leaves the page cache to others. It returns later; the disk's thread has the time.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from forebay.fabric.pool_layout import ALIGNMENT
from forebay.fabric.reading import after

log = logging.getLogger(__name__)

_REFUSALS = {errno.EINVAL, errno.EOPNOTSUPP}
"""What a file system says that writes nothing directly, or not from this memory."""


def write_range(path: Path, fd: int, pieces: Sequence[memoryview], offset: int) -> None:
    """Write `pieces` one after the other from `offset` of a file on; at most 1,024 of them.

    `fd` is open on the file at `path`. Raises OSError when the disk refuses; some of the bytes may be there then.
    """
    if offset % ALIGNMENT == 0 and all(len(piece) % ALIGNMENT == 0 for piece in pieces):
        try:
            _write_directly(path, pieces, offset)
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            log.debug("a direct write was refused: %s", error.strerror)
        else:
            return
    _write_all(fd, pieces, offset)


def _write_directly(path: Path, pieces: Sequence[memoryview], offset: int) -> None:
    """The file is opened for this write alone, which takes microseconds, so that there are no more open files."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT)
    try:
        _write_all(fd, pieces, offset)
    finally:
        os.close(fd)


def _write_all(fd: int, pieces: Sequence[memoryview], offset: int) -> None:
    while pieces:
        written = os.pwritev(fd, pieces, offset)
        offset += written
        pieces = after(pieces, written)
