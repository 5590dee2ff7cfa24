"""All tiers together: pages written through, spilled, loaded back; preemption pins; faults on the way; the bounds."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fabric.fabric_pages import PAGE, Device, chain, content, make_pool, put, ref, stored
from tests.fabric.memory_tier import MemoryTier

from forebay.fabric import mover
from forebay.fabric.disk_store import DiskStore
from forebay.fabric.faults import Fault, FaultyExtents, damage_file, damage_pool
from forebay.fabric.host_pool import HostPool
from forebay.fabric.jobs import Completion, Loaded, Saved
from forebay.fabric.memory import HostMemory
from forebay.fabric.metrics import Metrics
from forebay.fabric.mover import Mover
from forebay.fabric.pool_layout import data_start
from forebay.fabric.pool_reader import PoolReader
from forebay.fabric.saver import Spiller
from forebay.fabric.scrub import Scrubber
from forebay.fabric.tier_config import TierConfig
from forebay.fabric.tiers import KvTiers
from forebay.kv.identity import PUBLIC
from forebay.kv.quota import Quotas
from forebay.kv.retention import DAY_S
from forebay.kv.tiers import PageRef, Where

LIMIT = 4 << 20


class Clock:
    """Wall time that the test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def host(slots: int) -> HostMemory:
    return HostMemory(data_start(slots) + slots * PAGE)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_tiers(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., KvTiers]]:
    opened: list[KvTiers] = []

    def opener(slots: int = 16, *, disk: bool = True, **config: object) -> KvTiers:
        folder = tmp_path / "cache" if disk else None
        settings = TierConfig(PAGE, host(slots), folder, LIMIT, copy_share=1.0, **config)  # type: ignore[arg-type]
        opened.append(KvTiers(settings, clock))
        return opened[-1]

    yield opener
    for tiers in opened:
        tiers.close()


def leave(tiers: KvTiers, device: Device, pages: list[PageRef]) -> bool:
    """A running sequence with these pages gives up the device: all of them are kept below, or nothing happens."""
    at = tiers.missing(ids(pages), pages[0].tenant)
    if not tiers.keep(ids(pages), [pages[i] for i in at]):
        return False
    assert all(tiers.save_now(pages[i], device.write(i, pages[i].id)) for i in at)
    return True


def completions(tiers: KvTiers | Mover, count: int) -> list[Completion]:
    """Wait as an idle worker does, until so many have come."""
    found: list[Completion] = []
    while len(found) < count:
        ready, _, _ = select.select([tiers.fileno()], [], [], 20.0)
        assert ready, f"only {found} came"
        found += tiers.poll()
    return found


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


def save(tiers: KvTiers, device: Device, pages: list[PageRef]) -> None:
    for i, page in enumerate(pages):
        assert tiers.save(page, device.write(i, page.id), i)
    assert sorted(c.tag for c in completions(tiers, len(pages)) if isinstance(c, Saved) and c.kept) == list(
        range(len(pages))
    )


def load(tiers: KvTiers, device: Device, pages: list[PageRef], first: int) -> Loaded:
    ticket = tiers.load(pages, [device.address(first + i) for i in range(len(pages))])
    (done,) = completions(tiers, 1)
    assert isinstance(done, Loaded)
    assert done.ticket == ticket
    for i in range(done.pages):
        assert device.read(first + i) == content(pages[i].id)
    return done


def ids(pages: list[PageRef]) -> list[bytes]:
    return [page.id for page in pages]


def test_pages_come_back_from_host_and_after_a_restart_from_disk(open_tiers: Callable[..., KvTiers]) -> None:
    device, pages = Device(12), chain(6)
    tiers = open_tiers()
    save(tiers, device, pages)
    assert tiers.lookup(ids(pages), "t").count(Where.HOST) == 6
    assert tiers.lookup(ids(pages), "other").pages == 0
    done = load(tiers, device, pages, 6)
    assert (done.pages, done.host, done.disk) == (6, 6, 0)
    tiers.close()

    tiers = open_tiers()
    found = tiers.lookup([*ids(pages), b"unknown"], "t")
    assert found.pages == found.count(Where.DISK) == 6
    other = Device(6)
    done = load(tiers, other, pages, 0)
    assert (done.pages, done.host, done.disk) == (6, 0, 6)
    assert tiers.lookup(ids(pages), "t").count(Where.DISK) == 6, "read straight to the device"
    save(tiers, other, pages)
    assert tiers.lookup(ids(pages), "t").count(Where.HOST) == 6
    counters = tiers.counters()
    assert (counters.loaded_disk, counters.loaded_disk_tokens, counters.loaded_disk_bytes) == (6, 96, 6 * PAGE)


def test_a_load_takes_some_pages_from_host_and_others_from_disk(open_tiers: Callable[..., KvTiers]) -> None:
    device, pages = Device(12), chain(6)
    tiers = open_tiers()
    save(tiers, device, pages)
    tiers.close()
    tiers = open_tiers()
    save(tiers, device, pages[:2])
    done = load(tiers, device, pages, 6)
    assert (done.pages, done.host, done.disk) == (6, 2, 4)


def test_pages_of_class_none_stay_off_the_disk(open_tiers: Callable[..., KvTiers]) -> None:
    device, pages = Device(2), chain(2, retention="none")
    tiers = open_tiers()
    save(tiers, device, pages)
    tiers.close()
    tiers = open_tiers()
    assert tiers.lookup(ids(pages), "t").pages == 0


def test_a_load_stops_at_the_first_page_that_is_gone(open_tiers: Callable[..., KvTiers]) -> None:
    device, pages = Device(12), chain(6)
    tiers = open_tiers(disk=False)
    save(tiers, device, [*pages[:3], *pages[4:]])
    assert tiers.lookup(ids(pages), "t").pages == 3
    done = load(tiers, device, pages, 6)
    assert (done.pages, done.wanted) == (3, 6)
    assert tiers.counters().loads_failed == 1
    assert tiers.check() == []


def test_a_damaged_page_in_memory_is_read_from_disk_instead(open_tiers: Callable[..., KvTiers]) -> None:
    device, pages = Device(6), chain(3)
    tiers = open_tiers()
    save(tiers, device, pages)
    eventually(lambda: tiers.gauges().disk_pages == 3)
    damage_pool(tiers._pool.path, pages[1].id, byte=9)
    done = load(tiers, device, pages, 3)
    assert (done.pages, done.host, done.disk) == (3, 2, 1)
    assert tiers.counters().corrupt_host == 1


def test_expired_pages_are_a_miss(open_tiers: Callable[..., KvTiers], clock: Clock) -> None:
    device, pages = Device(2), chain(2, retention="agent")
    tiers = open_tiers()
    save(tiers, device, pages)
    tiers.close()
    clock.now += 4 * DAY_S
    tiers = open_tiers()
    assert tiers.lookup(ids(pages), "t").pages == 0


def test_use_on_the_device_prolongs_what_lies_below(open_tiers: Callable[..., KvTiers], clock: Clock) -> None:
    device, pages = Device(2), chain(2, retention="agent")
    tiers = open_tiers()
    save(tiers, device, pages)
    eventually(lambda: tiers.gauges().disk_pages == 2)
    clock.now += 2 * DAY_S
    tiers.used(ids(pages), "agent")
    tiers.close()
    clock.now += 2 * DAY_S
    assert open_tiers().lookup(ids(pages), "t").pages == 2


def test_what_leaves_the_device_is_pinned_and_only_what_is_not_below_is_copied(
    open_tiers: Callable[..., KvTiers],
) -> None:
    device, pages = Device(8), chain(4, retention="none")
    tiers = open_tiers(slots=4, disk=False)
    save(tiers, device, pages[:3])
    before = tiers.counters().saved
    assert leave(tiers, device, pages)
    assert tiers.counters().saved == before + 1
    for i in range(4):
        assert tiers.save(ref(f"x{i}"), device.write(0, ref(f"x{i}").id), i)
    assert not any(c.kept for c in completions(tiers, 4) if isinstance(c, Saved))
    assert load(tiers, device, pages, 4).pages == 4
    tiers.unpin(ids(pages))
    assert tiers.save(ref("y"), device.write(0, ref("y").id), 9)
    assert [c.kept for c in completions(tiers, 1) if isinstance(c, Saved)] == [True]
    assert tiers.check() == []


def test_leaving_is_all_or_none(open_tiers: Callable[..., KvTiers]) -> None:
    device = Device(8)
    tiers = open_tiers(slots=4, disk=False)
    first, second = chain(3, label="a"), chain(3, label="b")
    assert leave(tiers, device, first)
    assert not leave(tiers, device, second)
    assert tiers.lookup(ids(second), "t").pages == 0
    assert tiers.gauges().host.used == 3
    tiers.unpin(ids(first))
    with pytest.raises(KeyError):
        tiers.unpin(ids(second))
    assert tiers.check() == []


def test_promised_room_is_nobody_elses(open_tiers: Callable[..., KvTiers]) -> None:
    """Write-through of others can't take it, however much of it there is before the pages come."""
    device, pages, others = Device(8), chain(3), [ref(f"x{i}") for i in range(4)]
    tiers = open_tiers(slots=4, disk=False)
    assert tiers.keep(ids(pages), pages)
    assert tiers.room() == 1
    for i, page in enumerate(others):
        assert tiers.save(page, device.write(4 + i % 4, page.id), i)
    completions(tiers, 4)
    assert all(tiers.save_now(page, device.write(i, page.id)) for i, page in enumerate(pages))
    assert load(tiers, device, pages, 4).pages == 3
    assert tiers.check() == []


def test_a_copy_under_way_uses_the_room_that_its_page_was_promised(open_tiers: Callable[..., KvTiers]) -> None:
    device, pages = Device(8), chain(4)
    tiers = open_tiers(slots=4, disk=False)
    assert tiers.keep(ids(pages), pages)
    assert tiers.save(pages[3], device.write(3, pages[3].id), 3)
    assert [done.kept for done in completions(tiers, 1) if isinstance(done, Saved)] == [True]
    assert all(tiers.save_now(page, device.write(i, page.id)) for i, page in enumerate(pages[:3]))
    assert tiers.save_now(pages[3], device.write(3, pages[3].id)), "it is there already"
    assert tiers.counters().saved == 4
    assert load(tiers, device, pages, 4).pages == 4


def test_a_copy_that_was_given_up_is_made_good(open_tiers: Callable[..., KvTiers]) -> None:
    device, pages = Device(4), chain(1)
    tiers = open_tiers(slots=4, disk=False)
    assert tiers.keep(ids(pages), pages)
    tiers.fulfil(pages[0].id, device.write(0, pages[0].id))
    tiers.fulfil(pages[0].id, device.write(0, b"of no effect" * 3))
    assert load(tiers, device, pages, 2).pages == 1


def test_room_that_nobody_used_comes_back_at_the_end(open_tiers: Callable[..., KvTiers]) -> None:
    tiers = open_tiers(slots=4, disk=False)
    assert tiers.keep(ids(chain(3)), chain(3))
    tiers.close()


def test_burden_is_what_pins_would_hold_besides(open_tiers: Callable[..., KvTiers]) -> None:
    """Pages in the pool count as well as new ones; pinned ones, and those on disk, do not."""
    device, pages = Device(8), chain(3, retention="none")
    tiers = open_tiers(slots=4)
    save(tiers, device, pages[:2])
    assert tiers.burden(ids(pages), "t") == 3
    tiers.pin(ids(pages[:1]))
    assert tiers.burden(ids(pages), "t") == 2
    on_disk = chain(2, label="d")
    save(tiers, device, on_disk)
    eventually(lambda: tiers.gauges().disk_pages == 2 and tiers.gauges().host.dirty == 0)
    eventually(lambda: tiers.burden(ids(on_disk), "t") == 0)


def test_no_room_is_to_come_from_a_disk_that_fails() -> None:
    store = MemoryTier()
    store.failing = True
    device, first = Device(8), chain(3, label="a", retention="none")
    with KvTiers(TierConfig(PAGE, host(4)), store=store) as tiers:
        assert leave(tiers, device, first)
        assert tiers.cascade()
        eventually(lambda: not tiers.cascade())
        assert tiers.capacity() == tiers.room() == 1
        store.failing = False
        eventually(lambda: (tiers.cascade(), tiers.room())[1] == 4)
        assert tiers.capacity() > 4


def test_a_full_host_pool_cascades_pinned_pages_to_disk(open_tiers: Callable[..., KvTiers]) -> None:
    device = Device(8)
    tiers = open_tiers(slots=4)
    first, second = chain(3, label="a", retention="none"), chain(3, label="b", retention="none")
    assert leave(tiers, device, first)
    assert tiers.room() < 3 <= tiers.capacity()
    eventually(lambda: leave(tiers, device, second))
    found = tiers.lookup(ids(first), "t")
    assert found.pages == 3
    assert found.count(Where.DISK) >= 2
    for victims in (first, second):
        done = load(tiers, device, victims, 4)
        assert done.pages == 3
        tiers.unpin(ids(victims))
    assert tiers.check() == []


def test_a_pinned_page_that_the_disk_lost_is_kept(open_tiers: Callable[..., KvTiers], clock: Clock) -> None:
    device = Device(8)
    tiers = open_tiers(slots=2)
    kept, others = ref("kept"), [ref(f"x{i}", retention="none") for i in range(4)]
    save(tiers, device, [kept])
    eventually(lambda: tiers.gauges().disk_pages == 1)
    assert tiers._disk is not None
    tiers._disk.clear()
    clock.now += 1000.0
    tiers.pin([kept.id])
    save(tiers, device, others[:1])
    save(tiers, device, others[1:2])
    assert tiers.lookup([kept.id], "t").pages == 1
    tiers.unpin([kept.id])


def test_a_page_damaged_on_disk_is_written_there_again(open_tiers: Callable[..., KvTiers], tmp_path: Path) -> None:
    device, pages = Device(2), chain(1)
    tiers = open_tiers(verify_at_rest=True)
    save(tiers, device, pages)
    eventually(lambda: tiers.gauges().disk_pages == 1)
    (extent,) = tmp_path.rglob("*.kv")
    damage_file(extent, 7)
    eventually(lambda: tiers.counters().corrupt_disk == 1)
    eventually(lambda: tiers.counters().spilled == 2)
    tiers.close()
    assert load(open_tiers(), device, pages, 1).pages == 1


def test_clear_forgets_every_tier(open_tiers: Callable[..., KvTiers]) -> None:
    device, pages = Device(3), chain(3)
    tiers = open_tiers()
    save(tiers, device, pages)
    eventually(lambda: tiers.gauges().disk_pages == 3)
    tiers.clear()
    eventually(lambda: tiers.lookup(ids(pages), "t").pages == 0)
    eventually(lambda: tiers.gauges().disk_pages == 0)


def test_resting_pages_are_checked_when_asked_for(open_tiers: Callable[..., KvTiers]) -> None:
    device, pages = Device(3), chain(3)
    tiers = open_tiers(disk=False, verify_at_rest=True)
    save(tiers, device, pages)
    damage_pool(tiers._pool.path, pages[2].id, byte=5)
    eventually(lambda: tiers.counters().corrupt_host == 1)
    assert tiers.lookup(ids(pages), "t").pages == 2


def test_checking_keeps_its_rate_and_counts(tmp_path: Path) -> None:
    """However often it is asked: three pages a second here, in both tiers, round and round."""
    metrics, device, clock = Metrics(), Device(1), Clock()
    pool, disk = make_pool(4, metrics), DiskStore(tmp_path, LIMIT, metrics, 0.0)
    for page in chain(2):
        put(pool, page, device)
    disk.store([stored(page) for page in chain(4, label="d")], 0.0)
    scrubber = Scrubber(pool, disk, metrics, lambda: 0.0, steady=clock, pages_a_second=3)
    for asked, checked in ((5, 3), (5, 6), (1, 9)):
        assert sum(scrubber.run() for _ in range(asked)) == 0
        found = metrics.snapshot()
        assert found.checked_host + found.checked_disk == checked
        clock.now += 1.0
    damage_pool(pool.path, chain(2)[0].id, byte=5)
    bad = 0
    for _ in range(3):
        bad += scrubber.run()
        clock.now += 1.0
    assert bad == metrics.snapshot().corrupt_host == 1
    disk.close()
    pool.close()


class Parts:
    """A mover over a pool and a disk whose faults the test plans."""

    def __init__(
        self, folder: Path, plan: Callable[[str], Fault | None], slots: int = 8, saves: int = 1024, loads: int = 64
    ) -> None:
        self.metrics = Metrics()
        self.pool = make_pool(slots, self.metrics)
        self.disk = DiskStore(
            folder, LIMIT, self.metrics, 0.0, make_files=lambda f, size: FaultyExtents(f, size, plan, delay_s=0.05)
        )
        self.mover = Mover(self.pool, self.disk, self.metrics, lambda: 0.0, save_bound=saves, load_bound=loads)

    def close(self) -> None:
        self.mover.close()
        self.disk.close()
        self.pool.close()


@pytest.mark.parametrize("fault", list(Fault))
def test_faults_of_the_disk_lose_pages_but_never_change_them(tmp_path: Path, fault: Fault) -> None:
    turn = iter(range(10**6))
    parts = Parts(tmp_path, lambda _: fault if next(turn) % 3 == 1 else None)
    device = Device(32)
    rows = [chain(4, label=f"{i}/") for i in range(8)]
    for row in rows:
        for i, page in enumerate(row):
            assert parts.mover.save(page, device.write(i, page.id), i)
        completions(parts.mover, 4)
    eventually(lambda: parts.pool.gauges().dirty == 0)
    for row in rows:
        assert parts.mover.load(row, [device.address(8 + i) for i in range(4)]) is not None
        (done,) = completions(parts.mover, 1)
        assert isinstance(done, Loaded)
        for i in range(done.pages):
            assert device.read(8 + i) == content(row[i].id)
    assert parts.pool.check() == []
    parts.close()


def test_queues_have_bounds(tmp_path: Path) -> None:
    gate = threading.Event()

    def plan(operation: str) -> Fault | None:
        if operation == "read":
            gate.wait(20.0)
        return None

    parts = Parts(tmp_path, plan, loads=2)
    pages = chain(2)
    device = Device(8)
    for page in pages:
        put(parts.pool, page, device)
    parts.mover.spill_soon()
    eventually(lambda: parts.disk.pages == 2)
    parts.pool.clear()
    tickets = [parts.mover.load(pages, [device.address(2), device.address(3)]) for _ in range(8)]
    assert None in tickets
    accepted = [ticket for ticket in tickets if ticket is not None]
    parts.mover.cancel(accepted[-1])
    gate.set()
    found = {done.ticket: done for done in completions(parts.mover, len(accepted)) if isinstance(done, Loaded)}
    assert sorted(found) == accepted
    assert found[accepted[0]].pages == 2
    assert found[accepted[-1]].pages == 0
    parts.close()


def test_write_through_beyond_its_bound_is_skipped_and_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gate = threading.Event()
    reserve = HostPool.reserve

    def slow(self: HostPool, page: PageRef, now: float) -> object:
        gate.wait(20.0)
        return reserve(self, page, now)

    monkeypatch.setattr(HostPool, "reserve", slow)
    parts = Parts(tmp_path, lambda _: None, saves=2)
    device = Device(1)
    page = ref(1)
    address = device.write(0, page.id)
    queued = [parts.mover.save(page, address, i) for i in range(6)]
    gate.set()
    assert queued.count(False) >= 3
    assert len(completions(parts.mover, queued.count(True))) == queued.count(True)
    assert parts.metrics.snapshot().save_skipped_queue == queued.count(False)
    parts.close()


def test_closing_says_how_much_is_written(open_tiers: Callable[..., KvTiers], monkeypatch: pytest.MonkeyPatch) -> None:
    run = Spiller.run
    here = threading.current_thread()
    monkeypatch.setattr(mover, "_REPORT_EVERY_S", 0.0)
    monkeypatch.setattr(Spiller, "run", lambda self: run(self) if threading.current_thread() is here else 0)
    tiers = open_tiers(slots=64)
    save(tiers, Device(40), chain(40))
    shares: list[float] = []
    tiers.close(shares.append)
    assert shares == [0.0, 0.4, 0.8], "40 pages are three batches"


def test_public_pages_are_everybodys_in_every_tier(open_tiers: Callable[..., KvTiers]) -> None:
    device = Device(8)
    pages = chain(2, tenant=PUBLIC)
    tiers = open_tiers()
    save(tiers, device, pages)
    assert PoolReader(tiers._pool.path).read(pages[0].id, "a") == content(pages[0].id)
    for tenant in ("a", "b"):
        assert tiers.lookup(ids(pages), tenant).places == [Where.HOST] * 2
        assert tiers.missing(ids(pages), tenant) == []
    assert load(tiers, device, pages, 4).pages == 2
    eventually(lambda: tiers.gauges().disk_pages == 2)
    tiers.close()
    again = open_tiers()
    assert again.lookup(ids(pages), "a").places == [Where.DISK] * 2
    assert load(again, device, pages, 4).disk == 2
    assert again.lookup(ids(chain(2, tenant="b")), "a").pages == 0


def test_a_quota_bounds_what_may_be_kept_of_a_tenant_now_and_given_time(open_tiers: Callable[..., KvTiers]) -> None:
    """What it may give up of its own counts as room; what is pinned of it does not, until the disk has it."""
    device, pages = Device(8), chain(6, retention="none")
    quotas = {"host_quotas": Quotas(by_tenant={"t": 4 * PAGE}), "disk_quotas": Quotas(by_tenant={"t": 3 * PAGE})}
    tiers = open_tiers(slots=16, **quotas)
    assert (tiers.room_of("other"), tiers.capacity_of("other")) == (None, None)
    assert (tiers.room_of("t"), tiers.capacity_of("t")) == (4, 7)
    save(tiers, device, pages[:3])
    assert (tiers.room_of("t"), tiers.capacity_of("t")) == (4, 7)
    tiers.pin(ids(pages[:3]))
    assert (tiers.room_of("t"), tiers.capacity_of("t")) == (1, 4)
    tiers.cascade()
    eventually(lambda: tiers.room_of("t") == 4)
    assert tiers.capacity_of("t") == 4
    assert tiers.check() == []


def test_keep_beyond_a_quota_gives_up_nothing(open_tiers: Callable[..., KvTiers]) -> None:
    device, before, pages = Device(8), chain(2, label="before"), chain(4)
    tiers = open_tiers(slots=16, disk=False, host_quotas=Quotas(default=3 * PAGE))
    save(tiers, device, before)
    assert not tiers.keep(ids(pages), pages)
    assert tiers.lookup(ids(before), "t").pages == 2, "they could have made room for some of the new ones"
    assert leave(tiers, device, pages[:3])
    assert tiers.lookup(ids(before), "t").pages == 0
    others = [*chain(3, "b"), *chain(3, "c")]
    assert tiers.keep(ids(others), others), "each within its own quota"
    assert not tiers.keep(ids(chain(1, "b", label="more")), chain(1, "b", label="more"))
    assert tiers.check() == []


def test_pinned_pages_on_disk_leave_the_pool_before_those_behind_them_that_their_quota_keeps_here(
    open_tiers: Callable[..., KvTiers],
) -> None:
    """Three of six are on disk, which is all that may; the others are pinned here, and continue them."""
    device, pages, more = Device(8), chain(6, retention="none"), chain(3, label="more")
    tiers = open_tiers(slots=6, disk_quotas=Quotas(by_tenant={"t": 3 * PAGE}))
    assert leave(tiers, device, pages)
    assert tiers.room() == 0
    assert tiers.cascade()
    eventually(lambda: tiers.room() == 3)
    assert leave(tiers, device, more)
    assert tiers.lookup(ids(pages), "t").count(Where.DISK) == 3
    assert load(tiers, device, pages, 0).pages == 6
    assert tiers.check() == []


def test_a_tenants_quota_on_disk_is_no_failing_disk(open_tiers: Callable[..., KvTiers]) -> None:
    """What it refuses is asked for no more, and others lose no room by it."""
    device, pages = Device(8), chain(3, retention="none")
    tiers = open_tiers(slots=4, disk_quotas=Quotas(by_tenant={"t": 0}))
    whole = tiers.capacity()
    assert leave(tiers, device, pages)
    assert not tiers.cascade(), "no room is to come"
    tiers._pool.spill_pinned()
    tiers._mover.spill_soon()
    eventually(lambda: tiers.counters().spills_failed == 3)
    assert tiers.capacity() == whole - 3
    assert tiers.capacity_of("t") == 1
    assert leave(tiers, device, chain(1, "b", retention="none"))
    assert tiers.cascade()
    eventually(lambda: tiers.gauges().disk_pages == 1)
    assert tiers.counters().spills_failed == 3
