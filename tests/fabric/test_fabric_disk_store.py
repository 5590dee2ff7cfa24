"""The disk store: what was acknowledged is read back after a restart or is a miss; bounds, classes, quotas, damage."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.fabric.fabric_pages import (
    PAGE,
    chain,
    content,
    disk_usage,
    name,
    no_punching,
    read_all,
    ref,
    stored,
)

from forebay.core.errors import ConfigError
from forebay.fabric.disk_store import DiskStore
from forebay.fabric.errors import TierError
from forebay.fabric.extents import ExtentFiles
from forebay.fabric.faults import Fault, FaultyExtents, damage_file
from forebay.fabric.metrics import Metrics
from forebay.kv.quota import Quotas
from forebay.kv.retention import DAY_S, RetentionPolicy
from forebay.kv.tiers import PageRef, Where

LIMIT = 2 << 20


def open_store(folder: Path, metrics: Metrics | None = None, now: float = 0.0, limit: int = LIMIT) -> DiskStore:
    return DiskStore(folder, limit, metrics or Metrics(), now)


def put(store: DiskStore, pages: list[PageRef], now: float = 0.0) -> list[bool]:
    return store.store([stored(page) for page in pages], now)


def test_pages_survive_a_restart(tmp_path: Path) -> None:
    pages = chain(5)
    store = open_store(tmp_path)
    assert put(store, pages) == [True] * 5
    store.close()
    store = open_store(tmp_path)
    assert read_all(store, pages) == [content(page.id) for page in pages]
    assert store.where(pages[0].id, "other", 0.0) is Where.MISS
    store.close()


def test_neighbours_are_read_in_one_go_and_sizes_may_differ(tmp_path: Path) -> None:
    pages = chain(6)
    reads: list[int] = []

    class Counting(ExtentFiles):
        def read(self, places, buffers):  # type: ignore[no-untyped-def]
            reads.append(len(places))
            return super().read(places, buffers)

    store = DiskStore(tmp_path, LIMIT, Metrics(), 0.0, make_files=Counting)
    sizes = [5000, 4096, 100, 8192, 1, 4097]
    store.store([stored(page, size) for page, size in zip(pages, sizes, strict=True)], 0.0)
    leases = [lease for page in pages if (lease := store.lease(page.id, "t", 0.0))]
    order = [*leases[:4], leases[5], leases[4]]
    buffers = [memoryview(bytearray(lease.place.size)) for lease in order]
    assert store.read(order, buffers) == [True] * 6
    assert reads == [4, 1, 1]
    for lease, buffer in zip(order, buffers, strict=True):
        assert bytes(buffer) == content(lease.ref.id, len(buffer))
        lease.release()
    store.close()


def test_files_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    store = open_store(folder)
    put(store, chain(2))
    for path in [folder, *folder.rglob("*")]:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    store.close()


def test_a_folder_that_cannot_be_made_is_an_error_of_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="can't be used"):
        open_store(tmp_path / "file" / "cache")


def test_a_second_server_is_refused_and_told_why(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(ConfigError, match=r"in use by another server \(process \d+\)"):
        open_store(tmp_path)
    store.close()
    open_store(tmp_path).close()


@pytest.mark.parametrize("make_files", [ExtentFiles, no_punching])
def test_the_bound_holds_at_every_moment(tmp_path: Path, make_files: type[ExtentFiles]) -> None:
    metrics = Metrics()
    limit = 1 << 20
    store = DiskStore(tmp_path, limit, metrics, 0.0, make_files=make_files, extent_bytes=16 * PAGE)
    pages = [ref(i) for i in range(600)]
    for start in range(0, 600, 8):
        put(store, pages[start : start + 8], float(start))
        store.used([pages[0].id], "chat", float(start))
        assert disk_usage(tmp_path) <= limit
    assert metrics.snapshot().evicted_disk_room > 300
    found = read_all(store, pages, 600.0)
    kept = [i for i, data in enumerate(found) if data is not None]
    assert 80 < len(kept) == store.pages
    assert {0, 599} <= set(kept)
    assert all(found[i] == content(pages[i].id) for i in kept)
    store.close()
    assert disk_usage(tmp_path) <= limit


def test_compaction_moves_what_is_left_and_survives_a_restart(tmp_path: Path) -> None:
    metrics = Metrics()
    store = DiskStore(tmp_path, LIMIT, metrics, 0.0, make_files=no_punching, extent_bytes=32 * PAGE)
    pages = [ref(i, "keep" if i % 8 == 0 else "go") for i in range(96)]
    put(store, pages)
    lease = store.lease(pages[0].id, "keep", 0.0)
    assert lease is not None
    assert store.prune(0.0, tenant="go") == 84
    before = disk_usage(tmp_path)
    for _ in range(3):
        store.sweep(0.0)
    assert metrics.snapshot().compacted_bytes >= 4 * PAGE
    buffer = memoryview(bytearray(PAGE))
    assert store.read([lease], [buffer]) == [True]
    assert bytes(buffer) == content(pages[0].id)
    lease.release()
    store.sweep(0.0)
    assert disk_usage(tmp_path) <= before - 30 * PAGE
    kept = pages[::8]
    assert read_all(store, kept) == [content(page.id) for page in kept]
    store.close()
    store = open_store(tmp_path)
    assert read_all(store, kept) == [content(page.id) for page in kept]
    store.close()


def test_classes_end_by_the_clock_and_use_prolongs_them(tmp_path: Path) -> None:
    metrics = Metrics()
    policy = RetentionPolicy({"archive": 30 * DAY_S})
    store = DiskStore(tmp_path, LIMIT, metrics, 0.0, retention=policy)
    chat, agent, archive = ref(1), ref(2, retention="agent"), ref(3, retention="archive")
    used, upgraded = ref(4, retention="agent"), ref(5, retention="agent")
    put(store, [chat, agent, archive, used, upgraded])
    store.used([used.id], "agent", 2 * DAY_S)
    store.used([upgraded.id], "chat", 0.0)
    late = 4 * DAY_S
    assert [store.where(page.id, "t", late) for page in (chat, agent, used, upgraded)] == [
        Where.DISK,
        Where.MISS,
        Where.DISK,
        Where.DISK,
    ]
    store.sweep(late)
    assert store.pages == 4
    store.close()
    store = open_store(tmp_path, metrics, now=8 * DAY_S)
    assert [page for page, _ in store.names()] == [archive.id], "classes are remembered for tools"
    assert metrics.snapshot().evicted_disk_expired == 4
    store.close()


def test_quotas_make_a_tenant_give_up_its_own_pages(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, LIMIT, Metrics(), 0.0, quotas=Quotas(by_tenant={"a": 3 * PAGE}))
    other = ref("x", "b")
    put(store, [other])
    for i in range(5):
        put(store, [ref(i, "a")], float(i))
    kept = [i for i in range(5) if store.where(name(i, "a"), "a", 5.0) is Where.DISK]
    assert kept == [2, 3, 4]
    store.pin([name(i, "a") for i in kept])
    assert put(store, [ref(9, "a")], 9.0) == [False]
    assert store.where(other.id, "b", 9.0) is Where.DISK
    store.close()


def test_quotas_hold_within_a_batch_and_after_a_start_with_smaller_ones(tmp_path: Path) -> None:
    metrics = Metrics()
    store = DiskStore(tmp_path, LIMIT, metrics, 0.0, quotas=Quotas(default=5 * PAGE))
    assert put(store, [ref(i, "a") for i in range(8)] + [ref("x", "b")]) == [True] * 5 + [False] * 3 + [True]
    assert metrics.snapshot().refused_disk_quota == 3
    store.close()
    store = DiskStore(tmp_path, LIMIT, metrics, 0.0, quotas=Quotas(2 * PAGE, {"b": None}))
    assert sorted(tenant for _, tenant in store.names()) == ["a", "a", "b"]
    assert metrics.snapshot().evicted_disk_quota == 3
    store.close()


def test_pinned_and_leased_pages_stay(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, [ref(1), ref(2), ref(3)])
    store.pin([name(1)])
    lease = store.lease(name(2), "t", 0.0)
    assert lease is not None
    store.prune(1.0, to=1)
    assert {page for page, _ in store.names()} == {name(1), name(2)}
    assert store.where(name(1), "t", 99 * DAY_S) is Where.DISK
    lease.release()
    store.unpin([name(1)])
    store.prune(1.0, to=1)
    assert store.pages == 0
    store.close()


def test_flipped_bits_on_disk_are_a_miss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    pages = chain(3)
    store = open_store(tmp_path)
    put(store, pages)
    store.close()
    (extent,) = tmp_path.rglob("*.kv")
    damage_file(extent, PAGE + 77)
    store = open_store(tmp_path, metrics)
    assert read_all(store, pages) == [content(pages[0].id), None, content(pages[2].id)]
    assert store.where(pages[1].id, "t", 0.0) is Where.MISS
    assert metrics.snapshot().corrupt_disk == 1
    assert len([record for record in caplog.records if "dropped" in record.message]) == 1
    assert put(store, [pages[1]]) == [True]
    assert read_all(store, pages) == [content(page.id) for page in pages]
    store.close()


def test_a_torn_tail_is_a_miss_and_the_rest_is_read(tmp_path: Path) -> None:
    pages = chain(4)
    store = open_store(tmp_path)
    put(store, pages)
    store.close()
    (extent,) = tmp_path.rglob("*.kv")
    with extent.open("r+b") as file:
        file.truncate(2 * PAGE + 100)
    store = open_store(tmp_path)
    leases = [lease for page in pages if (lease := store.lease(page.id, "t", 0.0))]
    assert store.read(leases, [memoryview(bytearray(PAGE)) for _ in leases]) == [True, True, False, False]
    for lease in leases:
        lease.release()
    assert store.pages == 2
    store.close()


def test_files_that_the_index_does_not_name_are_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, chain(2))
    store.close()
    orphan = tmp_path / "extents" / "00000099.kv"
    orphan.write_bytes(b"x" * PAGE)
    (extent,) = [path for path in tmp_path.rglob("*.kv") if path != orphan]
    with extent.open("ab") as file:
        file.write(b"torn")
    store = open_store(tmp_path)
    assert not orphan.exists()
    assert extent.stat().st_size == 2 * PAGE
    store.close()


def test_a_lost_extent_is_a_miss(tmp_path: Path) -> None:
    pages = chain(2)
    store = open_store(tmp_path)
    put(store, pages)
    store.close()
    (extent,) = tmp_path.rglob("*.kv")
    extent.unlink()
    store = open_store(tmp_path)
    assert read_all(store, pages) == [None, None]
    assert put(store, pages) == [True, True]
    assert read_all(store, pages) == [content(page.id) for page in pages]
    store.close()


@pytest.mark.parametrize("junk", [b"", b"not a database at all" * 500])
def test_a_damaged_index_begins_empty(tmp_path: Path, junk: bytes) -> None:
    pages = chain(2)
    store = open_store(tmp_path)
    put(store, pages)
    store.close()
    (tmp_path / "index.sqlite").write_bytes(junk)
    store = open_store(tmp_path)
    assert read_all(store, pages) == [None, None]
    assert put(store, pages) == [True, True]
    store.close()


def test_another_format_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.save_values({"format": 99})
    store.close()
    with pytest.raises(ConfigError, match="format 99"):
        open_store(tmp_path)


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FLIP, Fault.TRUNCATE])
def test_reads_that_go_wrong_give_nothing(tmp_path: Path, fault: Fault) -> None:
    faults: list[Fault] = []
    metrics = Metrics()

    def plan(operation: str) -> Fault | None:
        return faults.pop() if faults and operation == "read" else None

    store = DiskStore(tmp_path, LIMIT, metrics, 0.0, make_files=lambda f, size: FaultyExtents(f, size, plan))
    pages = chain(2)
    put(store, pages)
    faults.append(fault)
    assert read_all(store, pages) == [None, content(pages[1].id)]
    assert store.where(pages[0].id, "t", 0.0) is Where.MISS
    assert metrics.snapshot().corrupt_disk == 1
    store.close()


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.TRUNCATE, Fault.FULL])
def test_writes_that_go_wrong_store_nothing_and_hold_no_space(tmp_path: Path, fault: Fault) -> None:
    faults: list[Fault] = []

    def plan(operation: str) -> Fault | None:
        return faults.pop() if faults and operation == "write" else None

    store = DiskStore(tmp_path, LIMIT, Metrics(), 0.0, make_files=lambda f, size: FaultyExtents(f, size, plan))
    pages = chain(4)
    before = store.disk_bytes
    faults.append(fault)
    with pytest.raises(TierError):
        put(store, pages)
    assert store.pages == 0
    assert store.disk_bytes <= before
    assert put(store, pages) == [True] * 4
    assert read_all(store, pages) == [content(page.id) for page in pages]
    store.close()


def test_a_wrong_bit_on_the_way_to_disk_is_found_when_read(tmp_path: Path) -> None:
    store = DiskStore(
        tmp_path, LIMIT, Metrics(), 0.0, make_files=lambda f, size: FaultyExtents(f, size, lambda _: Fault.FLIP)
    )
    put(store, [ref(1)])
    store.close()
    store = open_store(tmp_path)
    assert read_all(store, [ref(1)]) == [None]
    store.close()


def test_a_smaller_limit_cuts_the_store_down(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, [ref(i) for i in range(200)])
    store.close()
    store = open_store(tmp_path, limit=LIMIT // 4)
    assert disk_usage(tmp_path) <= LIMIT // 4
    assert 0 < store.pages < 200
    store.close()


def test_clear_leaves_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, chain(5))
    assert store.clear() == 5
    assert list(tmp_path.rglob("*.kv")) == []
    store.close()
