"""Loads in pieces, some at a time: only leading pages count, and a load that has ended holds nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from tests.fabric.fabric_pages import PAGE, Device, chain, content, make_pool, put, stored
from tests.fabric.memory_tier import MemoryTier

from forebay.fabric.faults import damage_pool
from forebay.fabric.host_pool import HostPool
from forebay.fabric.jobs import Loaded, LoadJob
from forebay.fabric.lease import DiskLease
from forebay.fabric.loader import Loader, take_leases
from forebay.fabric.metrics import Metrics
from forebay.kv.tiers import PageRef

PAGES = 12
PIECE = 2
THREADS = 3


class Slow(MemoryTier):
    """A store that does something before it reads."""

    def __init__(self, before: Callable[[Sequence[DiskLease]], None] = lambda leases: None) -> None:
        super().__init__()
        self.before = before

    def read(self, leases: Sequence[DiskLease], buffers: Sequence[memoryview]) -> list[bool]:
        self.before(leases)
        return super().read(leases, buffers)


class Setup:
    """A device, a pool and a store below it, with one loader."""

    def __init__(self, store: Slow, loader: Loader, pool: HostPool, metrics: Metrics) -> None:
        self.store, self.loader, self.pool, self.metrics = store, loader, pool, metrics
        self.device = Device(PAGES + 1)
        self.pages = chain(PAGES)

    def to_host(self, *numbers: int) -> None:
        for number in numbers:
            assert put(self.pool, self.pages[number], self.device)

    def to_disk(self, *numbers: int) -> None:
        assert all(self.store.store([stored(self.pages[number]) for number in numbers], 0.0))

    def job(self) -> LoadJob:
        addresses = [self.device.address(i + 1) for i in range(PAGES)]
        return LoadJob(1, self.pages, addresses, take_leases(self.pool, self.pages), time.monotonic())

    def run(self, job: LoadJob | None = None) -> Loaded:
        """Run a load; what it says it brought is there, and nothing is leased any more."""
        done = self.loader.run(job or self.job())
        for i, page in enumerate(self.pages[: done.pages]):
            assert self.device.read(i + 1) == content(page.id)
        assert done.pages == done.host + done.disk
        assert self.pool.room() == self.pool.slots
        return done


@contextmanager
def opened(store: Slow) -> Iterator[Setup]:
    metrics = Metrics()
    pool = make_pool(PAGES, metrics)
    loader = Loader(pool, store, metrics, lambda: 0.0, name="test", threads=THREADS, piece_bytes=PIECE * PAGE)
    try:
        yield Setup(store, loader, pool, metrics)
        assert pool.check() == []
    finally:
        loader.close()
        pool.close()


EVERY = range(PAGES)


def test_pages_come_from_either_tier_in_any_mixture() -> None:
    with opened(Slow()) as setup:
        setup.to_host(0, 1, 2, 7, 11)
        setup.to_disk(*(i for i in EVERY if i not in {0, 2, 7}))
        done = setup.run()
        assert (done.pages, done.host, done.disk) == (12, 5, 7)
        counters = setup.metrics.snapshot()
        assert (counters.loaded_host_tokens, counters.loaded_disk_tokens) == (80, 112)
        assert counters.loads_failed == 0


def test_several_reads_are_under_way_at_a_time() -> None:
    """Each waits until three are there, so one after the other would never end."""
    together = threading.Barrier(THREADS, timeout=20.0)

    def meet(leases: Sequence[DiskLease]) -> None:
        together.wait()

    with opened(Slow(meet)) as setup:
        setup.to_disk(*EVERY)
        assert setup.run().pages == PAGES


def test_no_more_reads_are_under_way_than_threads() -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def count(leases: Sequence[DiskLease]) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.002)
        with lock:
            now[0] -= 1

    with opened(Slow(count)) as setup:
        setup.to_disk(*EVERY)
        assert setup.run().pages == PAGES
    assert 1 < most[0] <= THREADS


def test_nothing_is_written_to_once_a_load_has_ended() -> None:
    """The first piece is a miss while the others are still being read."""
    reading: set[bytes] = set()
    all_there = threading.Barrier(THREADS, timeout=20.0)

    def linger(leases: Sequence[DiskLease]) -> None:
        reading.add(leases[0].ref.id)
        all_there.wait()
        if leases[0].ref.id != chain(1)[0].id:
            time.sleep(0.05)
        reading.discard(leases[0].ref.id)

    with opened(Slow(linger)) as setup:
        setup.to_disk(*EVERY)
        setup.store.bytes[setup.pages[0].id][9] ^= 1
        assert setup.run().pages == 0
        assert not reading


@pytest.mark.parametrize("gap", range(PAGES))
def test_a_load_ends_at_the_first_page_that_cannot_be_had(gap: int) -> None:
    with opened(Slow()) as setup:
        setup.to_host(*(i for i in EVERY if i % 3 == 0 and i != gap))
        setup.to_disk(*(i for i in EVERY if i % 3 and i != gap))
        assert setup.run().pages == gap
        assert setup.metrics.snapshot().loads_failed == 1


@pytest.mark.parametrize("bad", [0, 5, 11])
def test_a_page_damaged_in_the_pool_comes_from_disk(bad: int) -> None:
    with opened(Slow()) as setup:
        setup.to_host(*EVERY)
        setup.to_disk(*EVERY)
        damage_pool(setup.pool.path, setup.pages[bad].id, byte=7)
        done = setup.run()
        assert (done.pages, done.host, done.disk) == (12, 11, 1)
        assert setup.metrics.snapshot().corrupt_host == 1


@pytest.mark.parametrize("bad", [0, 5, 11])
def test_a_page_damaged_below_ends_the_load(bad: int) -> None:
    with opened(Slow()) as setup:
        setup.to_disk(*EVERY)
        setup.store.bytes[setup.pages[bad].id][9] ^= 1
        assert setup.run().pages == bad


def test_a_store_that_fails_ends_the_load_where_it_is() -> None:
    with opened(Slow()) as setup:
        setup.to_disk(*EVERY)
        setup.store.before = failing_at(setup.pages[6])
        assert setup.run().pages == 6
        setup.store.before = lambda leases: None
        assert setup.run().pages == PAGES, "the threads are there for the next load"


def failing_at(page: PageRef) -> Callable[[Sequence[DiskLease]], None]:
    def fail(leases: Sequence[DiskLease]) -> None:
        if any(lease.ref.id == page.id for lease in leases):
            raise OSError(5, "Input/output error")

    return fail


def test_a_cancelled_load_ends_what_is_under_way_and_no_more() -> None:
    jobs: list[LoadJob] = []
    reads: list[int] = []

    def cancel(leases: Sequence[DiskLease]) -> None:
        reads.append(len(leases))
        jobs[0].cancelled.set()

    with opened(Slow(cancel)) as setup:
        setup.to_disk(*EVERY)
        jobs.append(setup.job())
        assert setup.run(jobs[0]).pages <= THREADS * PIECE
        assert len(reads) <= THREADS
