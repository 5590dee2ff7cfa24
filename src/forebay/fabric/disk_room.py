"""Room in the disk store: who goes when the bound, a quota or a page's time says so, and how space is given back.

Called by the store's one writer. It writes no new page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from forebay.fabric.catalog import Catalog
from forebay.fabric.compaction import compact, sparse_extent
from forebay.fabric.extents import ExtentFiles
from forebay.fabric.index import Index, Record
from forebay.fabric.metrics import Metrics
from forebay.fabric.pool_layout import aligned
from forebay.fabric.protocol import StoredPage

_SPARSE = 0.25
"""A file with less than this share of live bytes is given up for a denser one."""


class DiskRoom:
    """Keeps files, index and catalog of one store within `limit` bytes of disk."""

    def __init__(self, files: ExtentFiles, index: Index, catalog: Catalog, metrics: Metrics, limit: int) -> None:
        self.limit = limit
        self._files = files
        self._index = index
        self._catalog = catalog
        self._metrics = metrics

    @property
    def disk_bytes(self) -> int:
        """Bytes of disk held, index included."""
        return self._files.allocated + self._index.disk_bytes

    def _margin_of(self, limit: int) -> int:
        """What the index and its log may grow by in one go, and where compaction puts what it moves."""
        return min(limit // 8, 2 << 20) + (0 if self._files.punches else self._files.extent_bytes)

    @property
    def for_pages(self) -> int:
        """Bytes of disk that pages may take, beside the index and what it may grow by."""
        return self.limit - self._index.disk_bytes - self._margin_of(self.limit)

    def make(self, size: int, limit: int | None = None) -> bool:
        """Evict and compact until `size` bytes more fit the limit; False when nothing more may go."""
        limit = self.limit if limit is None else limit
        margin = self._margin_of(limit)
        while (short := self.disk_bytes + margin + size - limit) > 0:
            number = sparse_extent(self._files, 0.5, limit - self.disk_bytes) if self._files.dead else None
            if number is not None and self._compact(number):
                continue
            if not self._evict(self._catalog.take_least(short), "room"):
                return False
        return True

    def admit(self, pages: Iterable[StoredPage]) -> list[StoredPage]:
        """Those pages that their tenants' quotas allow, after each tenant has given up older ones of its own."""
        admitted: list[StoredPage] = []
        coming: Counter[str] = Counter()
        for page in pages:
            tenant, size = page.ref.tenant, aligned(len(page.data))
            excess = self._catalog.excess(tenant, coming[tenant] + size)
            if excess > 0:
                self._evict(self._catalog.take_least(excess, tenant), "quota")
            if self._catalog.excess(tenant, coming[tenant] + size) > 0:
                self._metrics.count(refused_disk_quota=1)
                continue
            coming[tenant] += size
            admitted.append(page)
        return admitted

    def enforce_quotas(self) -> None:
        """Tenants that hold more than they may, after a start with smaller quotas, give up what is worth least."""
        for tenant, excess in self._catalog.all_excess():
            self._evict(self._catalog.take_least(excess, tenant), "quota")

    def expire(self, now: float) -> None:
        """Pages that are past their time go."""
        retention = self._catalog.retention
        for name in self._index.retentions():
            late = self._index.unused_since(name, now - retention.seconds(name))
            self._evict(self._catalog.take(self._catalog.expired(late, now)), "expired")

    def tidy(self) -> None:
        """Empty the sparsest file, if it is sparse enough and not being written to."""
        number = sparse_extent(self._files, _SPARSE, self.limit - self.disk_bytes)
        if number is not None and not self._files.is_active(number):
            self._compact(number)

    def forget(self, records: Sequence[Record]) -> None:
        """Records that the catalog gave up: out of the index first, then their space."""
        self._index.remove(record.ref.id for record in records)
        self._files.free(self._catalog.vacate(record.place for record in records))

    def _evict(self, records: list[Record], reason: str) -> int:
        self.forget(records)
        self._metrics.count(**{f"evicted_disk_{reason}": len(records)})
        return len(records)

    def _compact(self, number: int) -> bool:
        """Empty an extent; False when that gave no space back, since pages in it are being read."""
        before = self.disk_bytes
        self._metrics.count(compacted_bytes=compact(number, self._files, self._index, self._catalog))
        return self.disk_bytes < before
