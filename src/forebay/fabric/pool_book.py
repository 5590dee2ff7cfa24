"""What a host pool knows of its pages: values, pins, quotas, and which of them should be on disk. No memory, no lock:
`HostPool` calls it with its own lock held.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from forebay.fabric.slots import SlotPage
from forebay.kv.quota import Quotas, Usage
from forebay.kv.retention import RetentionPolicy
from forebay.kv.tiers import PageRef
from forebay.kv.value import ValueOrder, Worth


class PoolBook:
    """Pages by id. A pin holds a page unless it is clean, which means that it is on disk as well."""

    def __init__(self, worth: Worth, retention: RetentionPolicy, quotas: Quotas, page_bytes: int) -> None:
        self.pages: dict[bytes, SlotPage] = {}
        self.order = ValueOrder()
        self.pins: dict[bytes, int] = {}
        self.dirty: OrderedDict[bytes, None] = OrderedDict()
        """Pages that should be on disk, oldest request first."""
        self._worth = worth
        self._retention = retention
        self._usage = Usage(quotas)
        self._page_bytes = page_bytes

    def __len__(self) -> int:
        return len(self.pages)

    @property
    def may_go(self) -> int:
        """Pages that nothing holds."""
        return len(self.pages) - self.order.held

    @property
    def pinned(self) -> int:
        """Pages here that someone pins."""
        return len(self.pins.keys() & self.pages.keys())

    def burden(self, pages: Iterable[bytes]) -> list[bytes]:
        """Those of these pages whose pins would hold more of the pool than is held now: all but those that are pinned,
        or are clean."""
        pins, here = self.pins, self.pages
        return [page for page in pages if page not in pins and not ((found := here.get(page)) and found.clean)]

    def add(self, page: SlotPage) -> None:
        """A page is here now."""
        ref = page.ref
        self.pages[ref.id] = page
        self.order.add(ref.id, ref.parent, ref.tenant, self._score(page))
        if not page.clean:
            self._hold_pins(page)
        self._usage.change(ref.tenant, self._page_bytes)

    def remove(self, page: SlotPage) -> None:
        """A page is gone, whatever held it."""
        del self.pages[page.ref.id]
        self.order.remove(page.ref.id)
        self.dirty.pop(page.ref.id, None)
        self._usage.change(page.ref.tenant, -self._page_bytes)

    def least(self, tenant: str | None = None) -> SlotPage | None:
        """The page that goes next, of this tenant or of all; None when none may.

        Pages that continue others go before those, but where all that are left are kept here, one that a pin keeps on
        disk may go from their midst.
        """
        page = self.order.least(tenant)
        if page is None and self._loose(tenant):
            page = next((pinned for pinned in self.pins if self._is_loose(pinned, tenant)), None)
        return None if page is None else self.pages[page]

    def room_of(self, tenant: str) -> int | None:
        """How many pages more the tenant's quota allows when all of it that may go has gone; None: no quota."""
        return self._usage.room(tenant, self._page_bytes, self.order.held_of(tenant))

    def over_quota(self, tenant: str) -> bool:
        """Whether the tenant has to give up a page before it may have one more."""
        return self._usage.excess(tenant, self._page_bytes) > 0

    def held_by_tenants(self) -> dict[str, int]:
        """Bytes of each tenant."""
        return self._usage.by_tenant()

    def used(self, page: SlotPage, retention: str, now: float) -> None:
        """A request of this retention class uses the page."""
        page.last_use, page.uses = now, page.uses + 1
        ref = page.ref
        self.order.rescore(ref.id, self._score(page))
        kept = self._retention.longer(ref.retention, retention)
        if kept != ref.retention:
            page.ref = PageRef(ref.id, ref.parent, ref.tenant, kept, ref.end)
            self.queue_for_disk(page)

    def pin(self, pages: Sequence[bytes]) -> None:
        """One pin more for each, also for those that come later."""
        pins = self.pins
        if pins.keys().isdisjoint(pages) and len(set(pages)) == len(pages):
            pins.update(dict.fromkeys(pages, 1))
        else:
            for page in pages:
                pins[page] = pins.get(page, 0) + 1
        here = filter(None, map(self.pages.get, pages))
        self.order.hold_all([found.ref.id for found in here if not found.clean])

    def unpin(self, pages: Sequence[bytes]) -> None:
        """One pin less for each. Raises KeyError for a page that has none."""
        pins = self.pins
        for page in pages:
            left = pins[page] - 1
            if left:
                pins[page] = left
            else:
                del pins[page]
        here = filter(None, map(self.pages.get, pages))
        self.order.release_all([found.ref.id for found in here if not found.clean])

    def mark_clean(self, page: bytes) -> None:
        """The page is on disk now."""
        found = self.pages.get(page)
        if found is not None and not found.clean:
            for _ in range(self.pins.get(page, 0)):
                self.order.release(page)
            found.clean = True

    def mark_unclean(self, pages: Iterable[bytes]) -> None:
        """These pages are on disk no longer: a pin holds them here again, and their class may send them there again."""
        for found in filter(None, map(self.pages.get, pages)):
            if found.clean:
                found.clean = False
                self._hold_pins(found)
                self.queue_for_disk(found)

    def queue_for_disk(self, page: SlotPage) -> None:
        """Have the page written to disk, if it is complete, not there, and of a class that is."""
        if _spillable(page) and self._retention.stored(page.ref.retention):
            self.dirty[page.ref.id] = None

    def queue_pinned(self, full: Callable[[str], bool]) -> int:
        """Have every pinned page written to disk but those of tenants that are `full` there; returns how many were
        not there."""
        refused = cache(full)
        pinned = ((page, self.pages.get(page)) for page in self.pins)
        wanted = [page for page, found in pinned if found and _spillable(found) and not refused(found.ref.tenant)]
        self.dirty.update(dict.fromkeys(wanted))
        return len(wanted)

    def take_dirty(self, limit: int) -> list[SlotPage]:
        """Up to `limit` pages that should be on disk."""
        return [self.pages[self.dirty.popitem(last=False)[0]] for _ in range(min(limit, len(self.dirty)))]

    def choose(self, wanted: Callable[[SlotPage], bool]) -> Sequence[SlotPage]:
        """The pages that `wanted` picks."""
        return [page for page in self.pages.values() if wanted(page)]

    def problems(self) -> list[str]:
        """Recount; empty when all is well."""
        found = []
        if len(self.order) != len(self.pages):
            found.append(f"{len(self.order)} pages are ordered, {len(self.pages)} are here")
        held = sum(self._usage.by_tenant().values())
        if held != len(self.pages) * self._page_bytes:
            found.append(f"tenants are charged {held} bytes for {len(self.pages)} pages")
        return found

    def _loose(self, tenant: str | None) -> int:
        """Pages that nothing holds, of this tenant or of all."""
        if tenant is None:
            return self.may_go
        return self._usage.held(tenant) // self._page_bytes - self.order.held_of(tenant)

    def _is_loose(self, page: bytes, tenant: str | None) -> bool:
        found = self.pages.get(page)
        if found is None or not found.clean or found.leases or not found.pending.done:
            return False
        return tenant in {None, found.ref.tenant}

    def _score(self, page: SlotPage) -> float:
        return self._worth.score(page.last_use, page.uses, self._page_bytes)

    def _hold_pins(self, page: SlotPage) -> None:
        for _ in range(self.pins.get(page.ref.id, 0)):
            self.order.hold(page.ref.id)


def _spillable(page: SlotPage) -> bool:
    return page.pending.done and not page.clean
