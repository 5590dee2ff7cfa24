"""The disk tier: pages that survive restarts, within a bound on disk space that is never passed.

Payload in extents, names in the index, the running state in the catalog. One thread writes (`store`, `sweep`, `prune`);
`where`, `used`, `pin` and `unpin` wait for no input or output; `lease` and `read` may come from any thread.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from forebay.fabric.catalog import Catalog
from forebay.fabric.disk_room import DiskRoom
from forebay.fabric.errors import TierError
from forebay.fabric.extents import EXTENTS, ExtentFiles, Place, runs
from forebay.fabric.index import Record
from forebay.fabric.lease import DiskLease
from forebay.fabric.lock import DirectoryLock
from forebay.fabric.metrics import Metrics
from forebay.fabric.pool_layout import aligned
from forebay.fabric.protocol import StoredPage
from forebay.fabric.recovery import make_folder, no_collection, open_index
from forebay.kv.quota import Quotas
from forebay.kv.retention import RetentionPolicy
from forebay.kv.tiers import Where
from forebay.kv.value import Worth

log = logging.getLogger(__name__)

_SMALLEST_EXTENT = 1 << 20


class DiskStore:
    """All pages of a cache directory. Readers are given bytes that match their checksum, or nothing."""

    def __init__(
        self,
        folder: Path,
        limit: int,
        metrics: Metrics,
        now: float,
        *,
        retention: RetentionPolicy | None = None,
        worth: Worth | None = None,
        quotas: Quotas | None = None,
        extent_bytes: int | None = None,
        make_files: Callable[[Path, int], ExtentFiles] = ExtentFiles,
    ) -> None:
        """Open the store in `folder` (made if need be, for this user only), holding at most `limit` bytes of disk.

        `retention` None takes the classes that the store was last opened with. What is beyond the limit goes; a store
        whose index is damaged begins empty. Raises ConfigError when another server uses it, its format is another, or
        the folder can't be made.
        """
        self.folder = folder
        make_folder(folder)
        self._lock = DirectoryLock(folder)
        self._write = threading.RLock()
        self._metrics = metrics
        self._dropped: list[Record] = []
        self.on_drop: Callable[[bytes], None] = lambda _: None
        """Hears of each page that turned out to be damaged."""
        self._index = open_index(folder, min(1 << 20, limit // 16))
        smallest = min(_SMALLEST_EXTENT, max(1, limit // 8))
        self._files = make_files(folder / EXTENTS, extent_bytes or max(smallest, limit // 128))
        self._catalog = Catalog(worth or Worth(half_life_s=3600.0), self._classes(retention), quotas or Quotas())
        self._room = DiskRoom(self._files, self._index, self._catalog, metrics, limit)
        with no_collection():
            self._recover(now)

    def _classes(self, given: RetentionPolicy | None) -> RetentionPolicy:
        """The classes of the server, or those of the last one where a tool opens its store."""
        if given is None:
            return RetentionPolicy(self._index.value("retention") or {})
        self._index.set_values({"retention": given.classes})
        return given

    def _recover(self, now: float) -> None:
        places: dict[int, list[Place]] = {}
        records = list(self._index.records())
        for record in records:
            places.setdefault(record.place.extent, []).append(record.place)
        self._files.recover(places)
        self._catalog.add(records)
        with self._write:
            self._room.expire(now)
            self._room.enforce_quotas()
            self._room.make(0)

    def where(self, page: bytes, tenant: str, now: float) -> Where:
        """DISK or MISS; a page of another tenant, or one past its time, is a miss."""
        return Where.MISS if self._catalog.get(page, tenant, now) is None else Where.DISK

    def lacking(self, pages: Iterable[bytes]) -> list[bytes]:
        """Those of these pages that are not here, whoever's they are."""
        return [page for page in pages if page not in self._catalog]

    def used(self, pages: Iterable[bytes], retention: str, now: float) -> None:
        """A request of this class uses these pages; written down at the next `sweep`."""
        self._catalog.used(pages, retention, now)

    def pin(self, pages: Sequence[bytes]) -> None:
        """Keep these pages, and those of them that come later, until `unpin`. Pins end with the process."""
        self._catalog.pin(pages)

    def unpin(self, pages: Iterable[bytes]) -> None:
        """Take back one pin of each."""
        self._catalog.unpin(pages)

    def room(self, page_bytes: int) -> int:
        """How many more pages of this size could be kept beside those that are held, all others being given up."""
        return max(0, self._room.for_pages // aligned(page_bytes) - self._catalog.held)

    def room_of(self, tenant: str, page_bytes: int) -> int | None:
        """How many more pages of this size the tenant's quota allows beside those that are held; None: no quota."""
        return self._catalog.room_of(tenant, aligned(page_bytes))

    def lease(self, page: bytes, tenant: str, now: float) -> DiskLease | None:
        """The right to read a page, or None."""
        record = self._catalog.lease(page, tenant, now)
        if record is None:
            return None
        end = partial(self._catalog.end_lease, record, record.place)
        return DiskLease(record.ref, record.place, record.checksum, end, partial(self._drop, record))

    def read(self, leases: Sequence[DiskLease], buffers: Sequence[memoryview]) -> list[bool]:
        """Fill each buffer with the page of its lease, in large reads where pages lie side by side.

        Returns which ones are right; what a buffer of another one holds is undefined, and that page is dropped.
        """
        right: list[bool] = []
        for run in runs([lease.place for lease in leases]):
            arrived = self._read_run(leases[run], buffers[run])
            for lease, buffer in zip(leases[run], buffers[run], strict=True):
                right.append(lease.check(buffer, min(max(arrived, 0), len(buffer))))
                arrived -= aligned(len(buffer))
        return right

    def _read_run(self, leases: Sequence[DiskLease], buffers: Sequence[memoryview]) -> int:
        try:
            return self._files.read([lease.place for lease in leases], buffers)
        except OSError as error:
            log.warning("reading the cache directory failed: %s", error.strerror)
            return 0

    def store(self, pages: Sequence[StoredPage], now: float) -> list[bool]:
        """Write pages and name them in the index; returns which ones are on disk afterwards.

        A page is refused when its tenant's quota or the bound leaves no room for it. Raises TierError when the disk
        refuses; then none of them is stored.
        """
        with self._writing():
            new = {page.ref.id: page for page in pages if page.ref.id not in self._catalog}
            held = self._catalog.hold(page.ref.parent for page in new.values())
            try:
                admitted = self._room.admit(new.values())
                if admitted and self._room.make(sum(aligned(len(page.data)) for page in admitted)):
                    self._append(admitted, now)
            finally:
                self._catalog.let_go(held)
            return [page.ref.id in self._catalog for page in pages]

    def sweep(self, now: float) -> None:
        """Housekeeping, every minute or so: write down uses, drop what is past its time, give space back."""
        with self._writing():
            self._index.touch(self._catalog.take_touched())
            self._room.expire(now)
            self._room.make(0)
            self._room.tidy()

    def prune(
        self, now: float, *, to: int | None = None, unused_for: float | None = None, tenant: str | None = None
    ) -> int:
        """Drop the least valuable pages until at most `to` bytes are held; pages unused for `unused_for` seconds; those
        of a `tenant` (of it only those unused for so long, when both are given). Returns how many went.
        """
        before = len(self._catalog)
        with self._writing():
            if unused_for is not None or tenant is not None:
                chosen = self._catalog.records(
                    lambda record: tenant in {None, record.ref.tenant} and now - record.last_use >= (unused_for or 0)
                )
                self._room.forget(self._catalog.take(record.ref.id for record in chosen))
            if to is not None:
                self._room.make(0, limit=to)
        return before - len(self._catalog)

    def clear(self) -> int:
        """Drop every page; returns how many there were."""
        with self._writing():
            taken = self._catalog.take(record.ref.id for record in self._catalog.records(lambda _: True))
            self._room.forget(taken)
            self._files.seal()
        return len(taken)

    @property
    def disk_bytes(self) -> int:
        """Bytes of disk held, index included."""
        return self._room.disk_bytes

    @property
    def pages(self) -> int:
        """Pages stored."""
        return len(self._catalog)

    def names(self) -> list[tuple[bytes, str]]:
        """Id and tenant of every page."""
        return [(record.ref.id, record.ref.tenant) for record in self._catalog.records(lambda _: True)]

    def tenant_bytes(self) -> dict[str, int]:
        """Bytes of each tenant's pages."""
        return self._catalog.tenant_bytes()

    def save_values(self, values: Mapping[str, object]) -> None:
        """Keep named values (JSON) beside the pages, such as counters for `forebay cache stats`."""
        with self._write:
            self._index.set_values(values)

    def value(self, name: str) -> object:
        """A named value, or None."""
        with self._write:
            found: object = self._index.value(name)
            return found

    def close(self) -> None:
        """Write down what is pending and let others use the directory. Leases must have ended."""
        with self._writing():
            self._index.touch(self._catalog.take_touched())
        self._files.close()
        self._index.close()
        self._lock.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One writer at a time; what readers found to be damaged goes first."""
        with self._write:
            try:
                dropped, self._dropped = self._dropped, []
                self._room.forget(dropped)
                yield
            except (sqlite3.Error, OSError) as error:
                raise TierError(f"the cache directory can't be used: {error}") from error

    def _append(self, pages: Sequence[StoredPage], now: float) -> None:
        places = self._files.append([page.data for page in pages])
        records = [Record(p.ref, place, p.checksum, now, now) for p, place in zip(pages, places, strict=True)]
        try:
            self._index.add(records)
        except sqlite3.Error:
            self._files.free(places)
            raise
        self._catalog.add(records)

    def _drop(self, record: Record, reason: str) -> None:
        """Out of sight at once; out of the index with the next write."""
        if self._catalog.take([record.ref.id]):
            log.warning("page %s on disk is dropped: %s", record.ref.id.hex()[:16], reason)
            self._metrics.count(corrupt_disk=1)
            self._dropped.append(record)
            self.on_drop(record.ref.id)
