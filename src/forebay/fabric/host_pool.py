"""The host tier: pages in fixed slots of shared memory. It keeps book and hands out leases; threads elsewhere copy.

The lock is held for book-keeping only, never while bytes move, so the step loop may call everything here.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial

from forebay.fabric.lease import Lease, Reservation
from forebay.fabric.memory import HostMemory
from forebay.fabric.metrics import Metrics, PoolGauges
from forebay.fabric.slots import SlotPage, Slots
from forebay.kv.quota import Quotas, Usage
from forebay.kv.retention import RetentionPolicy
from forebay.kv.tiers import PageRef, Where
from forebay.kv.value import ValueOrder, Worth

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
    ) -> None:
        """Raises ConfigError when the memory can't be had or does not hold a page."""
        self._slots = Slots(memory, page_bytes)
        self.page_bytes = page_bytes
        self.slots = self._slots.total
        self.path = self._slots.path
        """Where other processes of this user map the pool (`PoolReader`)."""
        self._metrics = metrics
        self._worth = worth or Worth(half_life_s=60.0)
        self._retention = retention or RetentionPolicy()
        self._usage = Usage(quotas or Quotas())
        self._lock = threading.Lock()
        self._pages: dict[bytes, SlotPage] = {}
        self._order = ValueOrder()
        self._pins: dict[bytes, int] = {}
        self._dirty: OrderedDict[bytes, None] = OrderedDict()

    def where(self, page: bytes, tenant: str) -> Where:
        """HOST, LOADING or MISS; a page of another tenant is a miss."""
        found = self._pages.get(page)
        if found is None or found.ref.tenant != tenant:
            return Where.MISS
        return Where.HOST if found.pending.done else Where.LOADING

    def tenant_of(self, page: bytes) -> str | None:
        """Whose page it is; None when it is not here."""
        found = self._pages.get(page)
        return None if found is None else found.ref.tenant

    def reserve(self, ref: PageRef, now: float, *, clean: bool = False) -> Reservation | None:
        """Room for a new page, made by evicting less valuable ones if need be; None when it is here already or nothing
        may go. `clean`: the page is on disk.
        """
        with self._lock:
            if ref.id in self._pages or not self._within_quota(ref.tenant):
                return None
            slot = self._free_slot()
            if slot is None:
                return None
            page = self._pages[ref.id] = SlotPage(ref, slot, now, clean=clean)
            self._order.add(ref.id, ref.parent, ref.tenant, self._score(page))
            if not clean:
                self._hold_pins(page)
            self._order.hold(ref.id)
            self._usage.change(ref.tenant, self.page_bytes)
        return Reservation(ref, self._slots.memory(slot), partial(self._commit, page), partial(self._abandon, page))

    def lease(self, page: bytes, tenant: str) -> Lease | None:
        """The right to read a page; None when this tenant has none of that id here."""
        with self._lock:
            found = self._pages.get(page)
            return None if found is None or found.ref.tenant != tenant else self._lease(found)

    def used(self, pages: Iterable[bytes], retention: str, now: float) -> None:
        """A request of this retention class uses these pages: they are worth more, and stay for the longer class."""
        with self._lock:
            for found in filter(None, map(self._pages.get, pages)):
                found.last_use, found.uses = now, found.uses + 1
                self._order.rescore(found.ref.id, self._score(found))
                self._keep_for(found, retention)
                self._note(found)

    def pin(self, pages: Iterable[bytes]) -> None:
        """Keep these pages, here or on disk, until `unpin`; ones that come later included. Pins count."""
        with self._lock:
            for page in pages:
                self._pins[page] = self._pins.get(page, 0) + 1
                found = self._pages.get(page)
                if found is not None:
                    self._note(found)
                    if not found.clean:
                        self._order.hold(page)

    def unpin(self, pages: Iterable[bytes]) -> None:
        """Take back one pin of each. Raises KeyError for a page that has none."""
        with self._lock:
            for page in pages:
                self._pins[page] -= 1
                if not self._pins[page]:
                    del self._pins[page]
                found = self._pages.get(page)
                if found is not None:
                    self._note(found)
                    if not found.clean:
                        self._order.release(page)

    def room(self) -> int:
        """How many pages could be reserved now: free slots, and slots of pages that may go."""
        with self._lock:
            return self._slots.free + len(self._pages) - self._order.held

    def take_dirty(self, limit: int) -> list[Lease]:
        """Up to `limit` pages that should be on disk, oldest request first, leased for the copy."""
        with self._lock:
            pages = [self._dirty.popitem(last=False)[0] for _ in range(min(limit, len(self._dirty)))]
            return [self._lease(self._pages[page]) for page in pages]

    def mark_clean(self, page: bytes) -> None:
        """The page is on disk now."""
        with self._lock:
            found = self._pages.get(page)
            if found is not None and not found.clean:
                for _ in range(self._pins.get(page, 0)):
                    self._order.release(page)
                found.clean = True

    def mark_unclean(self, page: bytes) -> None:
        """The page is on disk no longer; a pin holds it here again, and its class may send it there again."""
        with self._lock:
            found = self._pages.get(page)
            if found is not None and found.clean:
                found.clean = False
                self._hold_pins(found)
                self._queue_for_disk(found)

    def spill_pinned(self) -> int:
        """Ask for a copy on disk of every pinned page, so that their memory may go; returns how many there are."""
        with self._lock:
            wanted = [page for page in self._pins if (found := self._pages.get(page)) and self._spillable(found)]
            self._dirty.update(dict.fromkeys(wanted))
            return len(wanted)

    def drop(self, page: bytes) -> None:
        """Take a page out, whatever holds it: its bytes are wrong. Leases of it stay valid until their end."""
        with self._lock:
            found = self._pages.get(page)
            if found is not None:
                self._remove(found)

    def clear(self) -> None:
        """Take out every page that nobody pins or leases."""
        with self._lock:
            for found in list(self._pages.values()):
                if not found.leases and found.pending.done and found.ref.id not in self._pins:
                    self._remove(found)

    def gauges(self) -> PoolGauges:
        """Counts as of now."""
        with self._lock:
            pinned = sum(page in self._pins for page in self._pages)
            used = self.slots - self._slots.free
            return PoolGauges(self.page_bytes, self.slots, used, pinned, len(self._dirty))

    def pages(self) -> list[tuple[bytes, str]]:
        """Id and tenant of every page that can be read now."""
        with self._lock:
            return [(found.ref.id, found.ref.tenant) for found in self._pages.values() if found.pending.done]

    def check(self) -> list[str]:
        """Recount slots, holds and bytes; empty when all is well."""
        with self._lock:
            found = self._slots.check([page.slot for page in self._pages.values()])
            if len(self._order) != len(self._pages):
                found.append(f"{len(self._order)} pages are ordered, {len(self._pages)} are here")
            held = sum(self._usage.held(tenant) for tenant in {page.ref.tenant for page in self._pages.values()})
            if held != len(self._pages) * self.page_bytes:
                found.append(f"tenants are charged {held} bytes for {len(self._pages)} pages")
            return found

    def close(self) -> None:
        """Give the memory back. Leases must have ended."""
        self._slots.close()

    def _note(self, page: SlotPage) -> None:
        pins = self._pins.get(page.ref.id, 0)
        self._slots.note(page.slot, last_use=page.last_use, uses=page.uses, pins=pins, retention=page.ref.retention)

    def _score(self, page: SlotPage) -> float:
        return self._worth.score(page.last_use, page.uses, page.ref.end, self.page_bytes)

    def _spillable(self, page: SlotPage) -> bool:
        return page.pending.done and not page.clean

    def _keep_for(self, page: SlotPage, retention: str) -> None:
        kept = self._retention.longer(page.ref.retention, retention)
        if kept != page.ref.retention:
            ref = page.ref
            page.ref = PageRef(ref.id, ref.parent, ref.tenant, kept, ref.end)
            self._queue_for_disk(page)

    def _within_quota(self, tenant: str) -> bool:
        while self._usage.excess(tenant, self.page_bytes) > 0:
            victim = self._order.least(tenant)
            if victim is None:
                return False
            self._remove(self._pages[victim])
            self._metrics.count(evicted_host_quota=1)
        return True

    def _free_slot(self) -> int | None:
        if not self._slots.free:
            victim = self._order.least()
            if victim is None:
                return None
            self._remove(self._pages[victim])
            self._metrics.count(evicted_host_room=1)
        return self._slots.take()

    def _hold_pins(self, page: SlotPage) -> None:
        for _ in range(self._pins.get(page.ref.id, 0)):
            self._order.hold(page.ref.id)

    def _lease(self, page: SlotPage) -> Lease:
        page.leases += 1
        self._order.hold(page.ref.id)
        pending = None if page.pending.done else page.pending
        end = partial(self._end_lease, page)
        return Lease(
            page.ref, self._slots.memory(page.slot), lambda: page.checksum, pending, end, partial(self._corrupt, page)
        )

    def _end_lease(self, page: SlotPage) -> None:
        with self._lock:
            page.leases -= 1
            if not page.gone:
                self._order.release(page.ref.id)
            elif not page.leases and page.pending.done:
                self._slots.give_back(page.slot)

    def _commit(self, page: SlotPage, checksum: bytes) -> None:
        with self._lock:
            page.checksum = checksum
            page.pending.finish(failed=page.gone)
            if page.gone:
                self._give_back(page)
                return
            self._order.release(page.ref.id)
            self._note(page)
            self._slots.publish(page.slot, page.ref, checksum)
            self._queue_for_disk(page)

    def _queue_for_disk(self, page: SlotPage) -> None:
        if self._spillable(page) and self._retention.stored(page.ref.retention):
            self._dirty[page.ref.id] = None

    def _abandon(self, page: SlotPage) -> None:
        with self._lock:
            page.pending.finish(failed=True)
            if page.gone:
                self._give_back(page)
            else:
                self._remove(page)

    def _remove(self, page: SlotPage) -> None:
        page.gone = True
        del self._pages[page.ref.id]
        self._order.remove(page.ref.id)
        self._dirty.pop(page.ref.id, None)
        self._usage.change(page.ref.tenant, -self.page_bytes)
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
