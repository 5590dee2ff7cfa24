"""Copies pages down: device → host pool (write-through), and host pool → disk (spill). No threads of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from forebay.fabric.errors import CorruptPageError, TierError
from forebay.fabric.host_pool import HostPool
from forebay.fabric.jobs import Saved, SaveJob
from forebay.fabric.lease import Lease, Reservation
from forebay.fabric.metrics import Metrics
from forebay.fabric.protocol import StorageTier, StoredPage
from forebay.kv.tiers import PageRef, Where

log = logging.getLogger(__name__)

_BATCH = 16
"""Pages written to disk under one commit."""


class Saver:
    """Device → host pool."""

    def __init__(self, pool: HostPool, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._metrics = metrics
        self._clock = clock

    def run(self, job: SaveJob) -> Saved:
        """Copy one page, unless it is there already."""
        slot = self._pool.reserve(job.ref, self._clock())
        if slot is not None:
            self._fill(slot, job.address)
            return Saved(job.ref.id, job.tag, kept=True)
        kept = self._pool.where(job.ref.id, job.ref.tenant) is Where.HOST
        if kept:
            self._pool.used([job.ref.id], job.ref.retention, self._clock())
        else:
            self._metrics.count(save_skipped_room=1)
        return Saved(job.ref.id, job.tag, kept)

    def all_or_none(self, pages: Sequence[tuple[PageRef, int]]) -> bool:
        """Copy all of these pages that the pool lacks, now; False, with nothing copied, when not all find room."""
        slots: list[tuple[Reservation, int]] = []
        for ref, address in pages:
            slot = self._pool.reserve(ref, self._clock())
            if slot is not None:
                slots.append((slot, address))
            elif self._pool.where(ref.id, ref.tenant) is not Where.HOST:
                for reserved, _ in slots:
                    reserved.release()
                return False
        for slot, address in slots:
            self._fill(slot, address)
        return True

    def _fill(self, slot: Reservation, address: int) -> None:
        began = time.monotonic()
        with slot:
            slot.fill(address)
            slot.commit()
        self._metrics.count(saved=1, saved_bytes=self._pool.page_bytes, saved_s=time.monotonic() - began)


class Spiller:
    """Host pool → disk."""

    def __init__(self, pool: HostPool, disk: StorageTier, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._disk = disk
        self._metrics = metrics
        self._clock = clock
        self._failing = False

    def run(self) -> int:
        """Write a batch of the pages that should be on disk; returns how many there were."""
        leases = self._pool.take_dirty(_BATCH)
        if not leases:
            return 0
        began = time.monotonic()
        try:
            pages = [page for lease in leases if (page := _page(lease)) is not None]
            kept = self._store(pages)
            for page, stored in zip(pages, kept, strict=True):
                if stored:
                    self._pool.mark_clean(page.ref.id)
        finally:
            for lease in leases:
                lease.release()
        size = sum(kept) * self._pool.page_bytes
        self._metrics.count(spilled=sum(kept), spilled_bytes=size, spilled_s=time.monotonic() - began)
        return len(leases)

    def _store(self, pages: Sequence[StoredPage]) -> list[bool]:
        """What the disk keeps; a disk that fails is reported once until it works again."""
        kept = [False] * len(pages)
        try:
            kept = self._disk.store(pages, self._clock())
            self._failing = False
        except TierError as error:
            if not self._failing:
                log.warning("pages are not written to disk: %s", error)
            self._failing = True
        self._metrics.count(spills_failed=len(pages) - sum(kept))
        return kept


def _page(lease: Lease) -> StoredPage | None:
    try:
        return StoredPage(lease.ref, lease.checksum(), lease.view())
    except CorruptPageError:
        return None
