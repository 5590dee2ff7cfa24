"""Gives space of the disk store back by moving the pages that are left in a sparse extent and removing its file."""

from __future__ import annotations

import logging

from forebay.fabric.catalog import Catalog
from forebay.fabric.checksum import page_checksum
from forebay.fabric.extents import ExtentFiles
from forebay.fabric.index import Index, Record

log = logging.getLogger(__name__)


def sparse_extent(files: ExtentFiles, share: float, room: int) -> int | None:
    """The extent with the smallest share of live bytes, if that is at most `share` and they fit into `room` bytes."""
    candidates = [
        (extent.live / extent.size, extent.number)
        for extent in files.extents.values()
        if extent.size and extent.live <= extent.size * share and extent.live <= room
    ]
    return min(candidates)[1] if candidates else None


def compact(number: int, files: ExtentFiles, index: Index, catalog: Catalog) -> int:
    """Move what is left in an extent to the end of the newest one; returns the bytes moved.

    The file goes once nobody reads from it. Damaged pages are dropped on the way. A crash leaves each page at its old
    place or at its new one, both complete.
    """
    if files.is_active(number):
        files.seal()
    records = catalog.records(lambda record: record.place.extent == number)
    good, buffers = _read(records, files)
    moves = list(zip(good, files.append(buffers), strict=True))
    index.move((record.ref.id, place) for record, place in moves)
    files.free(catalog.vacate(catalog.relocate(moves)))
    bad = catalog.take(record.ref.id for record in records if record not in good)
    if bad:
        log.warning("%d pages of extent %d do not match their checksums; dropped", len(bad), number)
        index.remove(record.ref.id for record in bad)
        files.free(catalog.vacate(record.place for record in bad))
    return sum(record.place.size for record in good)


def _read(records: list[Record], files: ExtentFiles) -> tuple[list[Record], list[memoryview]]:
    good, buffers = [], []
    for record in sorted(records, key=lambda record: record.place.offset):
        buffer = memoryview(bytearray(record.place.size))
        arrived = files.read([record.place], [buffer])
        if arrived == record.place.size and page_checksum(record.ref.id, buffer) == record.checksum:
            good.append(record)
            buffers.append(buffer)
    return good, buffers
