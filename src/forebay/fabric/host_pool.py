"""The host tier: pages in slots of one size. It hands out leases; threads elsewhere copy.

The lock is held for book-keeping only (`PoolBook`), never while bytes move, so the step loop may call everything here.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from forebay.fabric.common_memory import CommonMemory
from forebay.fabric.errors import TierError
from forebay.fabric.lease import Lease, Reservation
from forebay.fabric.memory import HostMemory
from forebay.fabric.metrics import Metrics, PoolGauges
from forebay.fabric.pool_book import PoolBook
from forebay.fabric.slots import CommonSlots, OwnSlots, SlotPage, Slots
from forebay.kv.quota import Quotas
from forebay.kv.retention import RetentionPolicy
from forebay.kv.tiers import PageRef, Where, readable
from forebay.kv.value import Worth

log = logging.getLogger(__name__)


class HostPool:
    """Pages by id in slots of one size, with room made by value: least valuable first, prefixes from their end.

    A pinned page stays until it is on disk as well (then only its memory may go); a leased page stays in any case.
    """

    def __init__(
        self,
        memory: HostMemory,
        page_bytes: int,
        metrics: Metrics,
        *,
        worth: Worth | None = None,
        retention: RetentionPolicy | None = None,
        quotas: Quotas | None = None,
        common: CommonMemory | None = None,
    ) -> None:
        """With `common`, pages stay in that memory, and of `memory` only the size counts. Raises ConfigError when the
        memory can't be had or does not hold a page."""
        self._slots: Slots = OwnSlots(memory, page_bytes) if common is None else CommonSlots(memory, common)
        self.page_bytes = page_bytes
        self.common = common
        self.slots = self._slots.total
        self._metrics = metrics
        self._lock = threading.Lock()
        worth = worth or Worth(half_life_s=60.0)
        self._book = PoolBook(worth, retention or RetentionPolicy(), quotas or Quotas(), page_bytes)
        self._pages = self._book.pages

    @property
    def path(self) -> Path:
        """Where other processes of this user map the pool (`PoolReader`). Raises TierError for memory in common with
        the device, which none can map."""
        if isinstance(self._slots, OwnSlots):
            return self._slots.path
        raise TierError("the host pool lies in this process's own memory")

    def where(self, page: bytes, tenant: str) -> Where:
        """HOST, LOADING or MISS; a page of another tenant is a miss."""
        found = self._pages.get(page)
        if found is None or not readable(found.ref.tenant, tenant):
            return Where.MISS
        return Where.HOST if found.pending.done else Where.LOADING

    def missing(self, pages: Sequence[bytes], tenant: str) -> list[int]:
        """The places in `pages` of those that this tenant has not here (nor on their way to here)."""
        found = map(self._pages.get, pages)
        return [i for i, page in enumerate(found) if page is None or not readable(page.ref.tenant, tenant)]

    def reserve(self, ref: PageRef, now: float) -> Reservation | None:
        """Room for a new page, made by evicting less valuable ones if need be; None when it is here already or nothing
        may go."""
        with self._lock:
            if ref.id in self._pages or not self._within_quota(ref.tenant):
                return None
            slot = self._free_slot()
            if slot is None:
                return None
            page = SlotPage(ref, slot, now)
            self._book.add(page)
            self._book.order.hold(ref.id)
        put, commit = partial(self._slots.put, slot), partial(self._commit, page)
        return Reservation(ref, self.page_bytes, put, commit, partial(self._abandon, page))

    def lease(self, page: bytes, tenant: str) -> Lease | None:
        """The right to read a page; None when this tenant has none of that id here."""
        with self._lock:
            found = self._pages.get(page)
            return None if found is None or not readable(found.ref.tenant, tenant) else self._lease(found)

    def lease_all(self, refs: Sequence[PageRef]) -> list[Lease | None]:
        """`lease` for each of these pages."""
        with self._lock:
            found = [(self._pages.get(ref.id), ref.tenant) for ref in refs]
            return [self._lease(page) if page and readable(page.ref.tenant, tenant) else None for page, tenant in found]

    def used(self, pages: Iterable[bytes], retention: str, now: float) -> None:
        """A request of this retention class uses these pages: they are worth more, and stay for the longer class."""
        with self._lock:
            for found in filter(None, map(self._pages.get, pages)):
                self._book.used(found, retention, now)

    def pin(self, pages: Sequence[bytes]) -> None:
        """Keep these pages, here or on disk, until `unpin`; ones that come later included. Pins count."""
        with self._lock:
            self._book.pin(pages)

    def unpin(self, pages: Sequence[bytes]) -> None:
        """Take back one pin of each. Raises KeyError for a page that has none."""
        with self._lock:
            self._book.unpin(pages)

    def room(self) -> int:
        """How many pages could be reserved now: free slots, and slots of pages that may go."""
        with self._lock:
            return self._slots.free + self._book.may_go

    def room_of(self, tenant: str) -> int | None:
        """How many pages of a tenant its quota allows to be reserved now; None where it has none."""
        return self._book.room_of(tenant)

    def has_room(self, refs: Sequence[PageRef]) -> bool:
        """Whether all of these pages that are not here could be reserved now, each tenant's within its quota."""
        with self._lock:
            new = Counter(ref.tenant for ref in refs if ref.id not in self._pages)
            rooms = ((count, self._book.room_of(tenant)) for tenant, count in new.items())
            within = all(room is None or count <= room for count, room in rooms)
            return within and new.total() <= self._slots.free + self._book.may_go

    def is_pinned(self, page: bytes) -> bool:
        """Whether anyone pins this page."""
        return page in self._book.pins

    def burden(self, pages: Sequence[bytes]) -> list[bytes]:
        """Those of these pages that would hold a slot each if they were pinned here, and don't yet."""
        with self._lock:
            return self._book.burden(pages)

    @property
    def dirty(self) -> int:
        """How many pages should be on disk and are not."""
        return len(self._book.dirty)

    def take_dirty(self, limit: int) -> list[Lease]:
        """Up to `limit` pages that should be on disk, oldest request first, leased for the copy."""
        with self._lock:
            return [self._lease(page) for page in self._book.take_dirty(limit)]

    def mark_clean(self, page: bytes) -> None:
        """The page is on disk now."""
        with self._lock:
            self._book.mark_clean(page)

    def mark_unclean(self, pages: Iterable[bytes]) -> None:
        """These pages are on disk no longer; pins hold them here again, and their class may send them there again."""
        with self._lock:
            self._book.mark_unclean(pages)

    def spill_pinned(self, full: Callable[[str], bool] = lambda _: False) -> int:
        """Ask for a copy on disk of every pinned page, so that their memory may go; returns how many there are. Tenants
        that are `full` there are passed over."""
        with self._lock:
            return self._book.queue_pinned(full)

    def drop(self, page: bytes) -> None:
        """Take a page out, whatever holds it: its bytes are wrong. Leases of it stay valid until their end."""
        with self._lock:
            found = self._pages.get(page)
            if found is not None:
                self._remove(found)

    def clear(self) -> None:
        """Take out every page that nobody pins or leases."""
        with self._lock:
            pins = self._book.pins
            for found in self._book.choose(lambda p: not p.leases and p.pending.done and p.ref.id not in pins):
                self._remove(found)

    def gauges(self) -> PoolGauges:
        """Counts as of now."""
        with self._lock:
            book, used = self._book, self.slots - self._slots.free
            return PoolGauges(self.page_bytes, self.slots, used, book.pinned, len(book.dirty), book.held_by_tenants())

    def pages(self) -> list[tuple[bytes, str]]:
        """Id and tenant of every page that can be read now."""
        with self._lock:
            return [(found.ref.id, found.ref.tenant) for found in self._book.choose(lambda page: page.pending.done)]

    def check(self, device: Iterable[int] | None = None) -> list[str]:
        """Recount slots, holds and bytes; empty when all is well. With the frames of the device's pages, while nothing
        moves, those of the memory in common as well."""
        with self._lock:
            return self._slots.check([page.slot for page in self._pages.values()], device) + self._book.problems()

    def close(self) -> None:
        """Give the memory back. Leases must have ended."""
        self._slots.close()

    def _within_quota(self, tenant: str) -> bool:
        while self._book.over_quota(tenant):
            victim = self._book.least(tenant)
            if victim is None:
                self._metrics.count(refused_host_quota=1)
                return False
            self._remove(victim)
            self._metrics.count(evicted_host_quota=1)
        return True

    def _free_slot(self) -> int | None:
        if not self._slots.free:
            victim = self._book.least()
            if victim is None:
                return None
            self._remove(victim)
            self._metrics.count(evicted_host_room=1)
        return self._slots.take()

    def _lease(self, page: SlotPage) -> Lease:
        page.leases += 1
        self._book.order.hold(page.ref.id)
        pending = None if page.pending.done else page.pending
        end = partial(self._end_lease, page)
        address, memory = partial(self._slots.address, page.slot), partial(self._slots.memory, page.slot)
        return Lease(page.ref, address, memory, lambda: page.checksum, pending, end, partial(self._corrupt, page))

    def _end_lease(self, page: SlotPage) -> None:
        with self._lock:
            page.leases -= 1
            if not page.gone:
                self._book.order.release(page.ref.id)
            elif not page.leases and page.pending.done:
                self._slots.give_back(page.slot)

    def _commit(self, page: SlotPage, checksum: bytes) -> None:
        with self._lock:
            page.checksum = checksum
            page.pending.finish(failed=page.gone)
            if page.gone:
                self._give_back(page)
                return
            self._book.order.release(page.ref.id)
            self._slots.publish(page.slot, page.ref, checksum)
            self._book.queue_for_disk(page)

    def _abandon(self, page: SlotPage) -> None:
        with self._lock:
            page.pending.finish(failed=True)
            if page.gone:
                self._give_back(page)
            else:
                self._remove(page)

    def _remove(self, page: SlotPage) -> None:
        page.gone = True
        self._book.remove(page)
        self._slots.hide(page.slot)
        self._give_back(page)

    def _give_back(self, page: SlotPage) -> None:
        if not page.leases and page.pending.done:
            self._slots.give_back(page.slot)

    def _corrupt(self, page: SlotPage) -> None:
        with self._lock:
            if page.gone:
                return
            self._remove(page)
        self._metrics.count(corrupt_host=1)
        log.warning("page %s in the host pool does not match its checksum; dropped", page.ref.id.hex()[:16])
