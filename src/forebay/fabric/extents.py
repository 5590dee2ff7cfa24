"""The files that hold pages on disk: append only, many pages each. Which page lies where is the index's business.

A record is a page's bytes and nothing else, at an offset that is a multiple of 4096. Space of pages that went is given
back to the file system by punching holes where it can do that, else when the whole file goes (`compaction.py`).
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from forebay.fabric.errors import TierError
from forebay.fabric.pool_layout import aligned
from forebay.fabric.reading import read_all, read_range
from forebay.fabric.writing import write_range

log = logging.getLogger(__name__)

_PUNCH_KEEPING_SIZE = 0x02 | 0x01
EXTENTS = "extents"
"""The folder of the files, within the cache directory."""
_MOST_WRITTEN = 256
"""Records written by one system call, each with its padding; Linux allows 1,024 pieces."""


class Place(NamedTuple):
    """Where a record lies."""

    extent: int
    offset: int
    size: int

    @property
    def end(self) -> int:
        """Where the next record may begin."""
        return self.offset + aligned(self.size)


@dataclass(slots=True)
class Extent:
    """One file's book-keeping."""

    number: int
    size: int = 0
    live: int = 0
    """Bytes of records that the index names, each rounded up to 4096."""


class ExtentFiles:
    """All extents of one store. Appends, frees and removals come from one thread; reads may come from several."""

    def __init__(self, folder: Path, extent_bytes: int, *, punch: bool | None = None) -> None:
        """`punch` None finds out whether the file system can punch holes."""
        self.folder = folder
        self.extent_bytes = extent_bytes
        self.extents: dict[int, Extent] = {}
        self.punches = _can_punch(folder) if punch is None else punch
        self._fds: dict[int, int] = {}
        self._opening = threading.Lock()
        self._active: Extent | None = None
        self._next = 1

    @property
    def allocated(self) -> int:
        """Bytes of disk that the files hold."""
        return sum(extent.live if self.punches else extent.size for extent in list(self.extents.values()))

    @property
    def dead(self) -> int:
        """Bytes held by records that went."""
        return sum(extent.size - extent.live for extent in list(self.extents.values())) if not self.punches else 0

    def recover(self, live: dict[int, list[Place]]) -> None:
        """After a restart: remove files without live records, cut torn tails, give back the gaps."""
        for path in sorted(self.folder.glob("*.kv")):
            number = int(path.stem)
            self._next = max(self._next, number + 1)
            places = live.get(number, [])
            if not places:
                path.unlink()
                continue
            end = max(place.end for place in places)
            extent = Extent(number, min(end, path.stat().st_size), sum(aligned(place.size) for place in places))
            self.extents[number] = extent
            os.truncate(path, extent.size)
            if self.punches and path.stat().st_blocks * 512 > extent.live:
                self._punch_gaps(extent, places)

    def append(self, buffers: Sequence[memoryview]) -> list[Place]:
        """Write records one after the other and return where they lie.

        Raises TierError when the disk refuses; then none of them takes space.
        """
        places: list[Place] = []
        try:
            while len(places) < len(buffers):
                extent = self._active_extent()
                rest = buffers[len(places) :]
                room = max(1, (self.extent_bytes - extent.size) // aligned(len(rest[0])))
                places += self._write(extent, rest[: min(room, _MOST_WRITTEN)])
        except OSError as error:
            self.free(places)
            raise TierError(f"the cache directory can't be written: {error.strerror}") from error
        return places

    def read(self, places: Sequence[Place], buffers: Sequence[memoryview]) -> int:
        """Fill `buffers` from records that lie one behind the other in one extent; returns how many bytes came."""
        pieces: list[memoryview] = []
        for place, buffer in zip(places, buffers, strict=True):
            pieces.append(buffer)
            if place.end - place.offset > place.size:
                pieces.append(memoryview(bytearray(place.end - place.offset - place.size)))
        if places[-1].end - places[-1].offset > places[-1].size:
            pieces.pop()
        extent = places[0].extent
        return read_range(self._path(extent), self._fd(extent), pieces, places[0].offset)

    def free(self, places: Iterable[Place]) -> None:
        """These records went. Files without any left are removed, except the one that is written to."""
        for place in places:
            extent = self.extents.get(place.extent)
            if extent is None:  # the file was lost
                continue
            extent.live -= aligned(place.size)
            if self.punches:
                _punch(self._fd(place.extent), place.offset, aligned(place.size))
            if extent.live == 0 and extent is not self._active:
                self.remove(extent.number)

    def seal(self) -> None:
        """Write no more to the present file."""
        active, self._active = self._active, None
        if active is not None and active.live == 0:
            self.remove(active.number)

    def remove(self, number: int) -> None:
        """Delete one file."""
        if self._active is self.extents.pop(number):
            self._active = None
        with self._opening:
            fd = self._fds.pop(number, None)
        if fd is not None:
            os.close(fd)
        self._path(number).unlink(missing_ok=True)

    def close(self) -> None:
        """Close all files."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def is_active(self, number: int) -> bool:
        """Whether this file is being written to."""
        return self._active is not None and self._active.number == number

    def _active_extent(self) -> Extent:
        if self._active is None or self._active.size >= self.extent_bytes:
            self.seal()
            self._active = self.extents[self._next] = Extent(self._next)
            os.close(os.open(self._path(self._next), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._next += 1
        return self._active

    def _write(self, extent: Extent, buffers: Sequence[memoryview]) -> list[Place]:
        places, pieces, offset = [], [], extent.size
        for buffer in buffers:
            place = Place(extent.number, offset, len(buffer))
            places.append(place)
            pieces.append(buffer)
            padding = place.end - offset - place.size
            if padding:
                pieces.append(memoryview(bytes(padding)))
            offset = place.end
        write_range(self._path(extent.number), self._fd(extent.number), pieces, extent.size)
        extent.live += offset - extent.size
        extent.size = offset
        return places

    def _punch_gaps(self, extent: Extent, places: list[Place]) -> None:
        start = 0
        for place in sorted(places, key=lambda place: place.offset):
            if place.offset > start:
                _punch(self._fd(extent.number), start, place.offset - start)
            start = place.end

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}.kv"

    def _fd(self, number: int) -> int:
        with self._opening:
            fd = self._fds.get(number)
            if fd is None:
                fd = os.open(self._path(number), os.O_RDWR | os.O_CLOEXEC)
                self._fds[number] = fd
            return fd


def runs(places: Sequence[Place]) -> Iterator[slice]:
    """Slices of places that lie one behind the other in one file."""
    start = 0
    for i in range(1, len(places) + 1):
        if i < len(places) and places[i].extent == places[i - 1].extent and places[i].offset == places[i - 1].end:
            continue
        yield slice(start, i)
        start = i


def read_record(folder: Path, place: Place) -> bytes:
    """One record, read without a store; shorter than it should be when the file is. Raises OSError."""
    fd = os.open(folder / f"{place.extent:08d}.kv", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = bytearray(place.size)
        return bytes(data[: read_all(fd, [memoryview(data)], place.offset)])
    finally:
        os.close(fd)


def _punch(fd: int, offset: int, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(fd, _PUNCH_KEEPING_SIZE, ctypes.c_long(offset), ctypes.c_long(size)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"space could not be given back: {os.strerror(number)}")


def _can_punch(folder: Path) -> bool:
    probe = folder / "probe"
    fd = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, 8192)
        _punch(fd, 0, 4096)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM}:
            raise
        log.warning("the cache directory's file system can't punch holes; space is given back by compaction only")
        return False
    else:
        return True
    finally:
        os.close(fd)
        probe.unlink()
