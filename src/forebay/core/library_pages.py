"""Gives pages of programs' files back that were only read while a process started. They stay in the system's cache.

Most of what is mapped of libtorch is touched once, when it registers its operators. Such a page costs a minor fault if
it is touched again, and until then takes up nothing of the process. Not for data: only for what can't be written.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

_SMAPS = Path("/proc/self/smaps")
_DONTNEED = 4
"""MADV_DONTNEED: the next touch reads the file again, so what was written to a private page would be lost."""
_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+) ", re.MULTILINE)
_CLEAN = re.compile(rb"\nRss: +(\d+) kB\n.*\nAnonymous: +0 kB\n.*\nSwap: +0 kB\n", re.DOTALL)


def release_library_pages() -> int:
    """Unmap the pages of every file that is mapped privately, not for writing, and unchanged; returns how many bytes.
    10 ms in a process that has imported torch.

    A mapping with pages that differ from the file (relocations, for one) is left alone. No other thread may load or
    unload libraries meanwhile. Without Linux's /proc nothing is done.
    """
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is None:
        return 0
    released = 0
    for start, size, resident in _clean_mappings():
        if advise(ctypes.c_void_p(start), ctypes.c_size_t(size), _DONTNEED) == 0:
            released += resident
    return released


def _clean_mappings() -> Iterator[tuple[int, int, int]]:
    """Address, length and resident bytes of each mapping that holds nothing but its file's own bytes."""
    try:
        text = _SMAPS.read_bytes()
    except OSError:
        return
    mappings = list(_MAPPING.finditer(text))
    ends = [*(mapping.start() for mapping in mappings[1:]), len(text)]
    for mapping, text_end in zip(mappings, ends, strict=True):
        start, end, permissions, inode = mapping.groups()
        if permissions[1:2] == b"w" or permissions[3:4] != b"p" or inode == b"0":
            continue
        clean = _CLEAN.search(text, mapping.end(), text_end)
        if clean and clean[1] != b"0":
            yield int(start, 16), int(end, 16) - int(start, 16), int(clean[1]) << 10
