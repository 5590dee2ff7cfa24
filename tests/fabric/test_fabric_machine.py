"""Any order of storing, loading, pinning, evicting, damage, crashes and reopening: never wrong bytes, never too many.

The machine plays host pool and disk against dictionaries of what may be there; content follows from the page's id.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.fabric.fabric_pages import (
    PAGE,
    Device,
    chain,
    content,
    disk_usage,
    make_pool,
    no_punching,
    put,
    read_all,
    stored,
)

from forebay.fabric.disk_store import DiskStore
from forebay.fabric.extents import ExtentFiles
from forebay.fabric.faults import damage_file
from forebay.fabric.lease import copy_pages
from forebay.fabric.metrics import Metrics
from forebay.kv.quota import Quotas
from forebay.kv.retention import DAY_S
from forebay.kv.tiers import PageRef, Where
from forebay.kv.value import ValueOrder

LIMIT = 48 * PAGE + (256 << 10)
PAGES = [page for tenant in "ab" for label in "xyz" for page in chain(12, tenant, label=label)]
QUOTA = 30 * PAGE
page_ranges = st.tuples(st.integers(0, len(PAGES) - 1), st.integers(1, 12))


def chosen(pages: tuple[int, int]) -> list[PageRef]:
    return PAGES[pages[0] : pages[0] + pages[1]]


def held(order: ValueOrder, tenant: str) -> int:
    """Pages of a tenant that may not go, counted one by one."""
    return sum(entry.holds > 0 for entry in order._entries.values() if entry.tenant == tenant)


class DiskMachine(RuleBasedStateMachine):
    """A disk store in a small folder."""

    @initialize(punch=st.booleans())
    def start(self, punch: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="forebay-test-"))
        self.punch = punch
        self.now = 0.0
        self.pins: dict[bytes, int] = {}
        self.maybe: set[bytes] = set()
        self.damaged: set[bytes] = set()
        self.open()

    def open(self) -> None:
        make_files = ExtentFiles if self.punch else no_punching
        quotas = Quotas(by_tenant={"b": QUOTA})
        self.store = DiskStore(
            self.folder, LIMIT, Metrics(), self.now, quotas=quotas, extent_bytes=8 * PAGE, make_files=make_files
        )

    @rule(pages=page_ranges)
    def put(self, pages: tuple[int, int]) -> None:
        wanted = chosen(pages)
        kept = self.store.store([stored(page) for page in wanted], self.now)
        for page, stays in zip(wanted, kept, strict=True):
            assert stays == (self.store.where(page.id, page.tenant, self.now) is Where.DISK)
            if stays and page.id not in self.maybe:
                self.damaged.discard(page.id)
            self.maybe.add(page.id)

    @rule(pages=page_ranges)
    def get(self, pages: tuple[int, int]) -> None:
        wanted = chosen(pages)
        there = [self.store.where(page.id, page.tenant, self.now) for page in wanted]
        for page, where, data in zip(wanted, there, read_all(self.store, wanted, self.now), strict=True):
            assert data in {None, content(page.id)}
            if where is Where.DISK and page.id not in self.damaged:
                assert data == content(page.id)
            if data is None:
                self.maybe.discard(page.id)
                self.damaged.discard(page.id)

    @rule(pages=page_ranges)
    def another_tenant_sees_nothing(self, pages: tuple[int, int]) -> None:
        for page in chosen(pages):
            assert self.store.lease(page.id, "c", self.now) is None

    @rule(pages=page_ranges)
    def use(self, pages: tuple[int, int]) -> None:
        self.store.used([page.id for page in chosen(pages)], "chat", self.now)

    @rule(pages=page_ranges)
    def pin(self, pages: tuple[int, int]) -> None:
        ids = [page.id for page in chosen(pages)][:4]
        self.store.pin(ids)
        for page in ids:
            self.pins[page] = self.pins.get(page, 0) + 1

    @rule()
    def unpin_all(self) -> None:
        for page, count in self.pins.items():
            self.store.unpin([page] * count)
        self.pins.clear()

    @rule(days=st.sampled_from([0.001, 1.0, 5.0]))
    def time_passes(self, days: float) -> None:
        self.now += days * DAY_S
        self.store.sweep(self.now)

    @rule(share=st.floats(0.1, 1.0))
    def prune(self, share: float) -> None:
        self.store.prune(self.now, to=int(LIMIT * share))

    @rule(crash=st.booleans())
    def reopen(self, crash: bool) -> None:
        """A crash is a copy of the folder as it is while the store is open."""
        if crash:
            folder = Path(tempfile.mkdtemp(prefix="forebay-test-"))
            shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        self.store.close()
        if crash:
            shutil.rmtree(self.folder)
            self.folder = folder
        self.pins.clear()
        self.open()

    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        records = self.store._catalog.records(lambda _: True)
        if records:
            record = data.draw(st.sampled_from(sorted(records, key=lambda record: record.ref.id)))
            path = self.folder / "extents" / f"{record.place.extent:08d}.kv"
            damage_file(path, record.place.offset + data.draw(st.integers(0, PAGE - 1)))
            self.damaged.add(record.ref.id)

    @invariant()
    def the_bound_and_the_quota_hold(self) -> None:
        if hasattr(self, "store"):
            assert disk_usage(self.folder) <= LIMIT
            tenants = [tenant for _, tenant in self.store.names()]
            assert tenants.count("b") * PAGE <= QUOTA
            assert self.store.room_of("a", PAGE) is None
            assert self.store.room_of("b", PAGE) == QUOTA // PAGE - held(self.store._catalog._order, "b")

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)


class PoolMachine(RuleBasedStateMachine):
    """A host pool of few slots."""

    def __init__(self) -> None:
        super().__init__()
        self.device = Device(2)
        self.pool = make_pool(9, quotas=Quotas(by_tenant={"b": 5 * PAGE}))
        self.pins: dict[bytes, int] = {}
        self.leases: list[tuple[PageRef, object]] = []
        self.now = 0.0

    @rule(pages=page_ranges)
    def save(self, pages: tuple[int, int]) -> None:
        for page in chosen(pages):
            self.now += 1.0
            before = self.pool.where(page.id, page.tenant)
            kept = put(self.pool, page, self.device, self.now)
            assert kept == (before is Where.MISS and self.pool.where(page.id, page.tenant) is Where.HOST)

    @rule(pages=page_ranges)
    def load(self, pages: tuple[int, int]) -> None:
        for page in chosen(pages):
            lease = self.pool.lease(page.id, page.tenant)
            if lease is not None:
                with lease:
                    assert copy_pages([lease], [self.device.address(1)]) == 1
                assert self.device.read(1) == content(page.id)

    @rule(index=st.integers(0, len(PAGES) - 1), byte=st.integers(0, PAGE - 1))
    def damage(self, index: int, byte: int) -> None:
        lease = self.pool.lease(PAGES[index].id, PAGES[index].tenant)
        if lease is None:
            return
        with lease:
            lease._buffer[byte] ^= 1
            assert copy_pages([lease], [self.device.address(1)]) == 0, "a wrong byte passed"
            assert self.pool.where(PAGES[index].id, PAGES[index].tenant) is Where.MISS

    @rule(pages=page_ranges)
    def hold_leases(self, pages: tuple[int, int]) -> None:
        for page in chosen(pages)[:2]:
            lease = self.pool.lease(page.id, page.tenant)
            if lease is not None:
                self.leases.append((page, lease))

    @rule()
    def end_leases(self) -> None:
        for page, lease in self.leases:
            assert bytes(lease.view()) == content(page.id)  # type: ignore[attr-defined]
            lease.release()  # type: ignore[attr-defined]
        self.leases.clear()

    @rule(pages=page_ranges, clean=st.booleans())
    def pin(self, pages: tuple[int, int], clean: bool) -> None:
        ids = [page.id for page in chosen(pages)][:3]
        self.pool.pin(ids)
        for page in ids:
            self.pins[page] = self.pins.get(page, 0) + 1
            self.pool.mark_clean(page) if clean else self.pool.mark_unclean([page])

    @rule()
    def unpin(self) -> None:
        for page, count in self.pins.items():
            self.pool.unpin([page] * count)
        self.pins.clear()

    @rule()
    def spill(self) -> None:
        self.pool.spill_pinned()
        for lease in self.pool.take_dirty(3):
            self.pool.mark_clean(lease.ref.id)
            lease.release()

    @invariant()
    def the_books_are_right(self) -> None:
        assert self.pool.check() == []
        assert sum(tenant == "b" for _, tenant in self.pool.pages()) <= 5
        assert self.pool.room_of("a") is None
        assert self.pool.room_of("b") == 5 - held(self.pool._book.order, "b")

    def teardown(self) -> None:
        self.end_leases()
        self.unpin()
        self.pool.clear()
        assert self.pool.gauges().used == 0
        assert self.pool.check() == []
        self.pool.close()


TestDiskMachine = DiskMachine.TestCase
TestDiskMachine.settings = settings(max_examples=15, stateful_step_count=25, deadline=None, derandomize=True)
TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None, derandomize=True)
