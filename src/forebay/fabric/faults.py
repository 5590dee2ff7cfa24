"""Faults on purpose, for tests: disks that delay, fail, truncate, flip bits or are full, and memory that flips bits.

They act beneath every check, on the bytes themselves. Nothing here is used by a server.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from pathlib import Path

from forebay.fabric.extents import ExtentFiles, Place
from forebay.fabric.pool_layout import READY, read_header


class Fault(Enum):
    """What goes wrong with one read or write."""

    DELAY = auto()
    FAIL = auto()
    """An input or output error."""
    TRUNCATE = auto()
    """A read ends in the middle of its last page; a write fails after some of its pages."""
    FLIP = auto()
    """One bit of the first page is wrong, as read or as written."""
    FULL = auto()
    """A write finds no space. Reads are well."""


class FaultyExtents(ExtentFiles):
    """Extent files whose next reads and writes go wrong as `plan` says: it is asked "read" or "write" each time."""

    def __init__(
        self, folder: Path, extent_bytes: int, plan: Callable[[str], Fault | None], *, delay_s: float = 0.01
    ) -> None:
        super().__init__(folder, extent_bytes)
        self._plan = plan
        self._delay_s = delay_s

    def read(self, places: Sequence[Place], buffers: Sequence[memoryview]) -> int:
        """As `ExtentFiles.read`, or not."""
        fault = self._plan("read")
        if fault is Fault.FAIL:
            raise OSError(5, "Input/output error")
        if fault is Fault.DELAY:
            time.sleep(self._delay_s)
        arrived = super().read(places, buffers)
        if fault is Fault.FLIP:
            buffers[0][len(buffers[0]) // 2] ^= 1
        if fault is Fault.TRUNCATE:
            cut = len(buffers[-1]) // 2
            buffers[-1][cut:] = bytes(len(buffers[-1]) - cut)
            arrived -= len(buffers[-1]) - cut
        return arrived

    def append(self, buffers: Sequence[memoryview]) -> list[Place]:
        """As `ExtentFiles.append`, or not."""
        fault = self._plan("write")
        if fault is Fault.DELAY:
            time.sleep(self._delay_s)
        if fault is Fault.FLIP and buffers:
            wrong = bytearray(buffers[0])
            wrong[len(wrong) // 2] ^= 1
            buffers = [memoryview(wrong), *buffers[1:]]
        return super().append(buffers) if fault not in _WRITE_ERRORS else self._fail_append(buffers, fault)

    def _fail_append(self, buffers: Sequence[memoryview], fault: Fault | None) -> list[Place]:
        if fault is Fault.TRUNCATE:
            self.free(super().append(buffers[: len(buffers) // 2]))
        number, text = (28, "No space left on device") if fault is Fault.FULL else (5, "Input/output error")
        raise OSError(number, text)


_WRITE_ERRORS = {Fault.FAIL, Fault.TRUNCATE, Fault.FULL}


def damage_pool(path: Path, page: bytes, byte: int) -> None:
    """Flip a bit of one byte of a page in a host pool. Raises KeyError when the page isn't there."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    with mmap.mmap(fd, 0) as region:
        os.close(fd)
        table, _, slot_bytes, start = read_header(memoryview(region))
        slots = [i for i, row in enumerate(table) if row["state"] == READY and bytes(row["id"]) == page]
        del table
        if not slots:
            raise KeyError(f"page {page.hex()} is not in the pool at {path}")
        region[start + slots[0] * slot_bytes + byte] ^= 1


def damage_file(path: Path, offset: int) -> None:
    """Flip a bit of one byte of a file."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        byte = os.pread(fd, 1, offset)
        os.pwrite(fd, bytes([byte[0] ^ 1]), offset)
    finally:
        os.close(fd)
