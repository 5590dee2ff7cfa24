"""The checksum that every stored page carries from its first copy on. It finds damage and mix-ups, not attackers."""

from __future__ import annotations

import ctypes

import xxhash


def page_checksum(page: bytes, data: bytes | memoryview) -> bytes:
    """xxh3-128 of a page's bytes, seeded with its id: the right bytes under a wrong name fail as damaged ones do."""
    return xxhash.xxh3_128_digest(data, seed=int.from_bytes(page[:8], "little"))


def memory_at(address: int, size: int) -> memoryview:
    """`size` bytes of this process's memory as a writable buffer. The caller vouches that they are there."""
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def address_of(buffer: memoryview) -> int:
    """Where the bytes of a writable buffer lie."""
    return ctypes.addressof(ctypes.c_ubyte.from_buffer(buffer))
