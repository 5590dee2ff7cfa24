"""Keeps background copies to a share of the memory's speed. It counts; the thread that copies does the waiting."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


class Pacer:
    """Says how long to wait after each copy so that the rate is not passed. Time that went unused is not saved up."""

    def __init__(self, bytes_per_s: float) -> None:
        self._rate = bytes_per_s
        self._due = 0.0

    def delay(self, size: int, now: float) -> float:
        """Seconds to wait between a copy of `size` bytes that begins at `now` (monotonic) and the next one."""
        self._due = max(self._due, now) + size / self._rate
        return self._due - now


def copy_speed(clock: Callable[[], float], size: int = 16 << 20) -> float:
    """Bytes a second that one thread copies, the better of two tries; takes some 20 ms."""
    source, target = bytearray(size), bytearray(size)
    from_address = ctypes.addressof(ctypes.c_ubyte.from_buffer(source))
    to_address = ctypes.addressof(ctypes.c_ubyte.from_buffer(target))
    best = 0.0
    for _ in range(2):
        began = clock()
        ctypes.memmove(to_address, from_address, size)
        best = max(best, size / max(clock() - began, 1e-9))
    return best
