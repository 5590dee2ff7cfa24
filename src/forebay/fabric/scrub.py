"""Re-checks pages at rest, a few at a time, in the gaps of other work. Damaged pages drop out as at any other load."""

from __future__ import annotations

from collections.abc import Callable

from forebay.fabric.errors import CorruptPageError
from forebay.fabric.host_pool import HostPool
from forebay.fabric.protocol import StorageTier


class Scrubber:
    """Goes round all pages of the host pool and the disk, one after the other, again and again."""

    def __init__(self, pool: HostPool, disk: StorageTier | None, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._disk = disk
        self._clock = clock
        self._todo: list[tuple[bytes, str]] = []
        self._buffer = memoryview(bytearray(pool.page_bytes))

    def run(self, pages: int) -> int:
        """Check up to `pages` pages; returns how many of them were damaged."""
        bad = 0
        for _ in range(pages):
            if not self._todo:
                self._todo = self._pool.pages() + (self._disk.names() if self._disk else [])
                if not self._todo:
                    break
            page, tenant = self._todo.pop()
            bad += self._host_is_bad(page, tenant) or self._disk_is_bad(page, tenant)
        return bad

    def _host_is_bad(self, page: bytes, tenant: str) -> bool:
        lease = self._pool.lease(page, tenant)
        if lease is None:
            return False
        with lease:
            try:
                if lease.ready:
                    lease.verify()
            except CorruptPageError:
                return True
        return False

    def _disk_is_bad(self, page: bytes, tenant: str) -> bool:
        lease = self._disk.lease(page, tenant, self._clock()) if self._disk else None
        if lease is None or self._disk is None:
            return False
        with lease:
            if lease.place.size != len(self._buffer):
                self._buffer = memoryview(bytearray(lease.place.size))
            return self._disk.read([lease], [self._buffer]) != [True]
