"""What the disk store knows of its pages while it runs: the index in memory, with values, pins, leases and quotas.

It touches no file. Its lock is held for book-keeping only, so the step loop may call it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from forebay.fabric.extents import Place
from forebay.fabric.index import Record
from forebay.fabric.pool_layout import aligned
from forebay.kv.quota import Quotas, Usage
from forebay.kv.retention import RetentionPolicy
from forebay.kv.tiers import PageRef, readable
from forebay.kv.value import ValueOrder, Worth


class Catalog:
    """Records by page id. A record that is taken out while it is read gives its space back when the reading ends."""

    def __init__(self, worth: Worth, retention: RetentionPolicy, quotas: Quotas) -> None:
        self.retention = retention
        self._worth = worth
        self._usage = Usage(quotas)
        self._lock = threading.Lock()
        self._records: dict[bytes, Record] = {}
        self._order = ValueOrder()
        self._pins: dict[bytes, int] = {}
        self._touched: dict[bytes, Record] = {}
        self._reading: dict[Place, int] = {}
        self._leaving: set[Place] = set()
        self._vacated: list[Place] = []

    def __len__(self) -> int:
        return len(self._records)

    @property
    def held(self) -> int:
        """Pages that are pinned or read now."""
        return self._order.held

    def get(self, page: bytes, tenant: str, now: float) -> Record | None:
        """This tenant's page, unless it is past its time."""
        record = self._records.get(page)
        if record is None or not readable(record.ref.tenant, tenant):
            return None
        return None if self._is_expired(record, now) else record

    def __contains__(self, page: bytes) -> bool:
        return page in self._records

    def add(self, records: Sequence[Record]) -> None:
        """These pages are on disk now."""
        with self._lock:
            self._order.add_all([(r.ref.id, r.ref.parent, r.ref.tenant, self._score(r)) for r in records])
            for record in records:
                page = record.ref.id
                self._records[page] = record
                self._usage.change(record.ref.tenant, aligned(record.place.size))
                for _ in range(self._pins.get(page, 0)):
                    self._order.hold(page)

    def take(self, pages: Iterable[bytes]) -> list[Record]:
        """Take pages out, whatever holds them; ids that are not here are passed over."""
        with self._lock:
            return [self._take(page) for page in pages if page in self._records]

    def take_least(self, size: int, tenant: str | None = None) -> list[Record]:
        """Take out the least valuable pages of a tenant, or of all, until they make `size` bytes or none may go."""
        taken: list[Record] = []
        with self._lock:
            while size > 0 and (page := self._order.least(tenant)) is not None:
                record = self._take(page)
                size -= aligned(record.place.size)
                taken.append(record)
        return taken

    def lease(self, page: bytes, tenant: str, now: float) -> Record | None:
        """This tenant's page, which keeps its present place until `end_lease` of it."""
        with self._lock:
            record = self.get(page, tenant, now)
            if record is not None:
                self._reading[record.place] = self._reading.get(record.place, 0) + 1
                self._order.hold(page)
            return record

    def end_lease(self, record: Record, place: Place) -> None:
        """A reading of the page at `place` ended."""
        with self._lock:
            self._reading[place] -= 1
            if not self._reading[place]:
                del self._reading[place]
                if place in self._leaving:
                    self._leaving.discard(place)
                    self._vacated.append(place)
            if self._records.get(record.ref.id) is record:
                self._order.release(record.ref.id)

    def vacate(self, places: Iterable[Place]) -> list[Place]:
        """These places hold no page any more: returns those that nobody reads, and earlier ones read no longer."""
        with self._lock:
            free, self._vacated = self._vacated, []
            for place in places:
                if place in self._reading:
                    self._leaving.add(place)
                else:
                    free.append(place)
            return free

    def relocate(self, moves: Iterable[tuple[Record, Place]]) -> list[Place]:
        """These pages lie elsewhere now; returns the places that hold none any more, for `vacate`."""
        left: list[Place] = []
        with self._lock:
            for record, place in moves:
                if self._records.get(record.ref.id) is record:
                    left.append(record.place)
                    record.place = place
                else:
                    left.append(place)
        return left

    def used(self, pages: Iterable[bytes], retention: str, now: float) -> None:
        """A request of this retention class uses these pages."""
        with self._lock:
            for record in filter(None, map(self._records.get, pages)):
                ref = record.ref
                record.last_use, record.uses = now, record.uses + 1
                kept = self.retention.longer(ref.retention, retention)
                if kept != ref.retention:
                    record.ref = PageRef(ref.id, ref.parent, ref.tenant, kept, ref.end)
                self._touched[ref.id] = record
                self._order.rescore(ref.id, self._score(record))

    def pin(self, pages: Sequence[bytes]) -> None:
        """Keep these pages, and those of them that come later, until `unpin`."""
        with self._lock:
            pins = self._pins
            for page in pages:
                pins[page] = pins.get(page, 0) + 1
            self._order.hold_all(page for page in pages if page in self._records)

    def unpin(self, pages: Iterable[bytes]) -> None:
        """Take back one pin of each. Raises KeyError for a page that has none."""
        with self._lock:
            for page in pages:
                self._pins[page] -= 1
                if not self._pins[page]:
                    del self._pins[page]
                if page in self._records:
                    self._order.release(page)

    def hold(self, pages: Iterable[bytes]) -> list[bytes]:
        """Keep pages for the length of one operation; returns those that are here, for `let_go`."""
        with self._lock:
            held = [page for page in pages if page in self._records]
            for page in held:
                self._order.hold(page)
            return held

    def let_go(self, pages: Iterable[bytes]) -> None:
        """End of `hold`."""
        with self._lock:
            for page in pages:
                if page in self._records:
                    self._order.release(page)

    def excess(self, tenant: str, incoming: int) -> int:
        """Bytes that the tenant has to give up so that `incoming` more fit its quota (0 or less: none)."""
        with self._lock:
            return self._usage.excess(tenant, incoming)

    def room_of(self, tenant: str, size: int) -> int | None:
        """How many more pages of `size` bytes of disk the tenant's quota allows beside what is held of it; None: no
        quota."""
        return self._usage.room(tenant, size, self._order.held_of(tenant))

    def all_excess(self) -> list[tuple[str, int]]:
        """Tenants over their quota, with the bytes that each has to give up: after a start with smaller ones."""
        with self._lock:
            over = ((tenant, self._usage.excess(tenant, 0)) for tenant in self._usage.by_tenant())
            return [(tenant, excess) for tenant, excess in over if excess > 0]

    def tenant_bytes(self) -> dict[str, int]:
        """Bytes of each tenant."""
        with self._lock:
            return self._usage.by_tenant()

    def take_touched(self) -> list[Record]:
        """Pages used since the last call."""
        with self._lock:
            touched, self._touched = list(self._touched.values()), {}
            return touched

    def expired(self, pages: Iterable[bytes], now: float) -> list[bytes]:
        """Those pages that are past their time now and not pinned."""
        with self._lock:
            found = ((page, self._records.get(page)) for page in pages)
            return [page for page, record in found if record and self._is_expired(record, now)]

    def records(self, choose: Callable[[Record], bool]) -> list[Record]:
        """The records that `choose` picks."""
        with self._lock:
            return [record for record in self._records.values() if choose(record)]

    def _take(self, page: bytes) -> Record:
        record = self._records.pop(page)
        self._order.remove(page)
        self._touched.pop(page, None)
        self._usage.change(record.ref.tenant, -aligned(record.place.size))
        return record

    def _score(self, record: Record) -> float:
        return self._worth.score(record.last_use, record.uses, record.place.size)

    def _is_expired(self, record: Record, now: float) -> bool:
        return self.retention.expired(record.ref.retention, record.last_use, now) and record.ref.id not in self._pins
