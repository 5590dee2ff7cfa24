"""How a host pool lies in shared memory: a header, a table with one row a slot, then the slots. It decides nothing.

A row may be read by another process while it changes. That is safe without locks because a reader takes a page only if
its bytes fit the checksum, and the checksum depends on the page's id.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forebay.core.errors import ConfigError

MAGIC = b"FOREBAYP"
VERSION = 2
ALIGNMENT = 4096

HEADER = np.dtype(
    [
        ("magic", "V8"),
        ("version", "<u4"),
        ("slots", "<u4"),
        ("page_bytes", "<u8"),
        ("slot_bytes", "<u8"),
        ("data", "<u8"),
    ]
)
ROW = np.dtype(
    [
        ("state", "<u4"),
        ("id", "V32"),
        ("checksum", "V16"),
        ("tenant", "V32"),
    ]
)
"""`tenant` is the blake3 hash of the tenant's name: enough to keep tenants apart, and of one length."""

EMPTY, READY = 0, 1

Table = npt.NDArray[np.void]


def aligned(size: int) -> int:
    """`size` rounded up to whole memory pages."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def slots_in(size: int, page_bytes: int) -> int:
    """How many slots a region of `size` bytes has room for."""
    rows = ROW.itemsize
    slots = max(0, (size - ALIGNMENT) // (aligned(page_bytes) + rows))
    while slots and data_start(slots) + slots * aligned(page_bytes) > size:
        slots -= 1
    return slots


def data_start(slots: int) -> int:
    """Where the first slot lies."""
    return ALIGNMENT + aligned(slots * ROW.itemsize)


def write_header(buffer: memoryview, slots: int, page_bytes: int) -> Table:
    """Lay out an empty pool; returns its table, one row a slot."""
    table = np.frombuffer(buffer, ROW, slots, ALIGNMENT)
    table["state"] = EMPTY
    header = np.frombuffer(buffer, HEADER, 1, 0)
    header[0] = (np.void(MAGIC), VERSION, slots, page_bytes, aligned(page_bytes), data_start(slots))
    return table


def read_header(buffer: memoryview) -> tuple[Table, int, int, int]:
    """The table, page bytes, slot bytes and start of the data of a mapped pool.

    Raises ConfigError when the region holds no pool of this version.
    """
    header = np.frombuffer(buffer, HEADER, 1, 0)[0] if len(buffer) >= ALIGNMENT else None
    if header is None or bytes(header["magic"]) != MAGIC or int(header["version"]) != VERSION:
        raise ConfigError(f"The shared memory holds no KV pool of version {VERSION}.")
    slots, start = int(header["slots"]), int(header["data"])
    if start + slots * int(header["slot_bytes"]) > len(buffer):
        raise ConfigError("The shared memory is smaller than its own header says.")
    table = np.frombuffer(buffer, ROW, slots, ALIGNMENT)
    return table, int(header["page_bytes"]), int(header["slot_bytes"]), start
