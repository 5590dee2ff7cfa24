"""Copies pages down: device → host pool (write-through), and host pool → disk (spill). No threads of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from forebay.core.copying import CopyBytes, plain_copy
from forebay.fabric.errors import CorruptPageError, TierError
from forebay.fabric.host_pool import HostPool
from forebay.fabric.jobs import Saved, SaveJob
from forebay.fabric.lease import Lease, Reservation
from forebay.fabric.metrics import Metrics
from forebay.fabric.protocol import StorageTier, StoredPage
from forebay.kv.tiers import PageRef, Where

log = logging.getLogger(__name__)

BATCH = 16
"""Most pages written to disk under one commit."""


class Saver:
    """Device → host pool."""

    def __init__(
        self, pool: HostPool, metrics: Metrics, clock: Callable[[], float], copy: CopyBytes = plain_copy
    ) -> None:
        self._pool = pool
        self._metrics = metrics
        self._clock = clock
        self._copy = copy
        self._lock = threading.Lock()
        self._promised: dict[bytes, Reservation] = {}
        """Room for pages that are to come; each is taken out by the one thread that fills it."""

    def run(self, job: SaveJob) -> Saved:
        """Copy one page, unless it is there already."""
        slot = self._slot(job.ref)
        if slot is not None:
            self._fill(slot, job.address)
            return Saved(job.ref.id, job.tag, kept=True)
        kept = self._pool.where(job.ref.id, job.ref.tenant) is Where.HOST
        if kept:
            self._pool.used([job.ref.id], job.ref.retention, self._clock())
        else:
            self._metrics.count(save_skipped_room=1)
        return Saved(job.ref.id, job.tag, kept)

    def promise(self, refs: Sequence[PageRef]) -> bool:
        """Reserve room for all of these pages, to be filled later; False, with nothing reserved, when it isn't there.
        What is in the pool already, or on its way there, needs none."""
        slots: dict[bytes, Reservation] = {}
        with self._lock:
            if not self._pool.has_room(refs):
                return False  # before anything is given up for some of them
            for ref in refs:
                slot = self._pool.reserve(ref, self._clock())
                if slot is not None:
                    slots[ref.id] = slot
                elif self._pool.where(ref.id, ref.tenant) is Where.MISS:
                    for reserved in slots.values():
                        reserved.release()
                    return False
            self._promised.update(slots)
        return True

    def fulfil(self, page: bytes, address: int) -> None:
        """Copy a page in this call if it was promised room and has not come yet: its background copy was given up."""
        slot = self._promised.pop(page, None)
        if slot is not None:
            self._fill(slot, address)

    def save_now(self, ref: PageRef, address: int) -> bool:
        """Copy one page in this call, into the room that it was promised or any other; False when it was not copied."""
        slot = self._slot(ref)
        if slot is not None:
            self._fill(slot, address)
        return slot is not None

    def close(self) -> None:
        """Give back the room that was promised to pages that never came."""
        while self._promised:
            self._promised.popitem()[1].release()

    def _slot(self, ref: PageRef) -> Reservation | None:
        with self._lock:
            return self._promised.pop(ref.id, None) or self._pool.reserve(ref, self._clock())

    def _fill(self, slot: Reservation, address: int) -> None:
        began = time.monotonic()
        with slot:
            slot.fill(address, self._copy)
            slot.commit()
        self._metrics.count(saved=1, saved_bytes=self._pool.page_bytes, saved_s=time.monotonic() - began)


class Spiller:
    """Host pool → disk."""

    def __init__(self, pool: HostPool, disk: StorageTier, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._disk = disk
        self._metrics = metrics
        self._clock = clock
        self.refused = False
        """Whether the disk took none of the pinned pages that it was offered last, quotas of their tenants aside."""
        self._failing = False

    def run(self) -> int:
        """Write a batch of the pages that should be on disk; returns how many there were."""
        leases = self._pool.take_dirty(BATCH)
        if not leases:
            return 0
        began = time.monotonic()
        try:
            pages = [page for lease in leases if (page := _page(lease)) is not None]
            kept = self._store(pages)
            pinned = [stored for page, stored in zip(pages, kept, strict=True) if self._tells(page, stored)]
            self.refused = self.refused and not any(kept) if not pinned else not any(pinned)
            for page, stored in zip(pages, kept, strict=True):
                if stored:
                    self._pool.mark_clean(page.ref.id)
        finally:
            for lease in leases:
                lease.release()
        size = sum(kept) * self._pool.page_bytes
        self._metrics.count(spilled=sum(kept), spilled_bytes=size, spilled_s=time.monotonic() - began)
        return len(leases)

    def full(self, tenant: str) -> bool:
        """Whether the tenant's quota allows no more on disk: all that it has there is pinned."""
        return self._disk.room_of(tenant, self._pool.page_bytes) == 0

    def _tells(self, page: StoredPage, stored: bool) -> bool:
        """Whether what became of a page says how the disk is: a pinned one has to go there, but not over a quota."""
        return self._pool.is_pinned(page.ref.id) and (stored or not self.full(page.ref.tenant))

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
