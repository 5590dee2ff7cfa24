"""Re-checks pages at rest, a few a second, in the gaps of other work. Damaged pages drop out as at any other load."""

from __future__ import annotations

import time
from collections.abc import Callable

from forebay.fabric.errors import CorruptPageError
from forebay.fabric.host_pool import HostPool
from forebay.fabric.metrics import Metrics
from forebay.fabric.protocol import StorageTier

_PAGES_A_SECOND = 8
"""A page of 360 KiB takes about 0.1 ms to check in memory and 1 ms to read from disk."""


class Scrubber:
    """Goes round all pages of the host pool and the disk, one after the other, again and again.

    At most so many pages a second, however often it is asked: what is not checked in its time is not caught up with.
    """

    def __init__(
        self,
        pool: HostPool,
        disk: StorageTier | None,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        steady: Callable[[], float] = time.monotonic,
        pages_a_second: int = _PAGES_A_SECOND,
    ) -> None:
        """`clock` gives seconds since 1970, for the ages of pages; `steady` those by which the rate is kept."""
        self._pool = pool
        self._disk = disk
        self._metrics = metrics
        self._clock = clock
        self._steady = steady
        self._rate = pages_a_second
        self._next = steady()
        self._todo: list[tuple[bytes, str]] = []
        self._buffer = memoryview(bytearray(pool.page_bytes))

    def run(self) -> int:
        """Check a second's pages, if the last ones are a second ago; returns how many of them were damaged."""
        now = self._steady()
        if now < self._next:
            return 0
        self._next = now + 1
        bad = 0
        for _ in range(self._rate):
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
            if not lease.ready:
                return False
            self._metrics.count(checked_host=1)
            try:
                lease.verify()
            except CorruptPageError:
                return True
        return False

    def _disk_is_bad(self, page: bytes, tenant: str) -> bool:
        lease = self._disk.lease(page, tenant, self._clock()) if self._disk else None
        if lease is None or self._disk is None:
            return False
        with lease:
            self._metrics.count(checked_disk=1)
            if lease.place.size != len(self._buffer):
                self._buffer = memoryview(bytearray(lease.place.size))
            return self._disk.read([lease], [self._buffer]) != [True]
