"""The host pool: leases, reservations, eviction, pins, quotas, damage, and a second process that maps it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.fabric.fabric_pages import PAGE, Device, chain, content, make_pool, name, put, ref

from forebay.core.errors import ConfigError
from forebay.fabric.errors import LeaseError
from forebay.fabric.faults import damage_pool
from forebay.fabric.host_pool import HostPool
from forebay.fabric.lease import copy_pages
from forebay.fabric.memory import HostMemory
from forebay.fabric.metrics import Metrics
from forebay.fabric.pool_layout import data_start
from forebay.fabric.pool_reader import PoolReader
from forebay.kv.quota import Quotas
from forebay.kv.tiers import Where


@pytest.fixture
def device() -> Device:
    return Device(4)


def test_what_is_written_through_is_read_back(device: Device) -> None:
    pool = make_pool(2)
    page = ref(1)
    assert put(pool, page, device)
    assert pool.where(page.id, "t") is Where.HOST
    lease = pool.lease(page.id, "t")
    assert lease is not None
    with lease:
        assert (lease.tenant, lease.nbytes, lease.ready) == ("t", PAGE, True)
        assert copy_pages([lease], [device.address(2)]) == 1
        assert bytes(lease.view()) == content(page.id)
    assert device.read(2) == content(page.id)
    pool.close()


def test_a_lease_ends_with_its_release(device: Device) -> None:
    pool = make_pool(1)
    put(pool, ref(1), device)
    lease = pool.lease(name(1), "t")
    assert lease is not None
    view = lease.view()
    lease.release()
    for use in (
        lease.verify,
        lease.release,
        lease.view,
        lease.checksum,
        lambda: copy_pages([lease], [device.address(1)]),
    ):
        with pytest.raises(LeaseError, match="after its lease was released"):
            use()
    with pytest.raises(ValueError, match="released"):
        view[0]
    slot = pool.reserve(ref(2), 1.0)
    assert slot is not None
    slot.release()
    with pytest.raises(LeaseError):
        slot.commit()
    pool.close()


def test_a_page_is_read_only_once_its_copy_is_done(device: Device) -> None:
    pool = make_pool(1)
    slot = pool.reserve(ref(1), 0.0)
    assert slot is not None
    assert pool.where(name(1), "t") is Where.LOADING
    lease = pool.lease(name(1), "t")
    assert lease is not None
    assert not lease.ready
    with pytest.raises(LeaseError, match="before its copy was done"):
        copy_pages([lease], [device.address(1)])
    waited: list[bool] = []
    thread = threading.Thread(target=lambda: waited.append(lease.wait(20.0)))
    thread.start()
    slot.fill(device.write(0, name(1)))
    slot.commit()
    thread.join()
    assert waited == [True]
    assert copy_pages([lease], [device.address(1)]) == 1
    lease.release()
    assert device.read(1) == content(name(1))
    pool.close()


def test_an_abandoned_copy_is_a_miss_and_gives_its_slot_back(device: Device) -> None:
    pool = make_pool(1)
    slot = pool.reserve(ref(1), 0.0)
    waiting = pool.lease(name(1), "t")
    assert slot is not None
    assert waiting is not None
    slot.release()
    assert pool.where(name(1), "t") is Where.MISS
    assert not waiting.wait(0.0)
    assert not put(pool, ref(2), device), "the slot is still leased"
    waiting.release()
    assert put(pool, ref(2), device)
    assert pool.check() == []
    pool.close()


def test_another_tenant_finds_nothing_even_with_the_right_id(device: Device) -> None:
    pool = make_pool(1)
    put(pool, ref(1), device)
    assert pool.where(name(1), "other") is Where.MISS
    assert pool.lease(name(1), "other") is None
    pool.close()


def test_prefixes_go_from_their_end_and_the_oldest_first(device: Device) -> None:
    metrics = Metrics()
    pool = make_pool(4, metrics)
    old, new = chain(2, label="old"), chain(2, label="new")
    for now, page in enumerate([*old, *new]):
        assert put(pool, page, device, float(now))
    pool.used([page.id for page in old], "chat", 1000.0)
    gone = []
    for i in range(4):
        assert put(pool, ref(f"extra{i}"), device, 2000.0 + i)
        gone += [p for p in [*old, *new] if pool.where(p.id, "t") is Where.MISS and p not in gone]
    assert gone == [new[1], new[0], old[1], old[0]]
    assert metrics.snapshot().evicted_host_room == 4
    pool.close()


def test_leased_and_pinned_pages_stay(device: Device) -> None:
    pool = make_pool(2)
    put(pool, ref(1), device)
    put(pool, ref(2), device)
    pool.pin([name(1)])
    lease = pool.lease(name(2), "t")
    assert lease is not None
    assert not put(pool, ref(3), device, 9.0)
    lease.release()
    assert put(pool, ref(3), device, 9.0)
    assert pool.where(name(1), "t") is Where.HOST
    pool.mark_clean(name(1))
    pool.pin([name(3)])
    assert put(pool, ref(4), device, 9.0), "a pinned page that is on disk may go from memory"
    pool.unpin([name(1), name(3)])
    with pytest.raises(KeyError):
        pool.unpin([name(1)])
    assert pool.check() == []
    pool.close()


def test_a_pin_holds_a_page_that_comes_later(device: Device) -> None:
    pool = make_pool(1)
    pool.pin([name(1)])
    put(pool, ref(1), device)
    assert not put(pool, ref(2), device, 5.0)
    assert pool.spill_pinned() == 1
    assert pool.gauges().pinned == 1
    pool.close()


def test_pages_for_disk_are_handed_out_once(device: Device) -> None:
    pool = make_pool(3)
    put(pool, ref(1), device)
    put(pool, ref(2, retention="none"), device)
    (lease,) = pool.take_dirty(10)
    assert lease.ref.id == name(1)
    lease.release()
    assert pool.take_dirty(10) == []
    pool.used([name(2)], "agent", 1.0)
    (lease,) = pool.take_dirty(10)
    assert (lease.ref.id, lease.ref.retention) == (name(2), "agent")
    lease.release()
    pool.close()


def test_a_damaged_page_is_dropped_counted_and_never_read(device: Device, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    pool = make_pool(2, metrics)
    put(pool, ref(1), device)
    damage_pool(pool.path, name(1), byte=100)
    lease = pool.lease(name(1), "t")
    assert lease is not None
    with lease:
        assert copy_pages([lease], [device.address(1)]) == 0
    assert pool.where(name(1), "t") is Where.MISS
    assert metrics.snapshot().corrupt_host == 1
    assert len([record for record in caplog.records if "checksum" in record.message]) == 1
    assert put(pool, ref(1), device)
    assert pool.check() == []
    pool.close()


def test_the_slot_of_a_dropped_page_is_free_after_its_last_lease(device: Device) -> None:
    pool = make_pool(1)
    put(pool, ref(1), device)
    leases = [lease for _ in range(2) if (lease := pool.lease(name(1), "t"))]
    pool.drop(name(1))
    for lease in leases:
        assert not put(pool, ref(2), device)
        assert bytes(lease.view()) == content(name(1))
        lease.release()
    assert put(pool, ref(2), device)
    assert pool.gauges().used == 1
    pool.close()


def test_quotas_make_a_tenant_give_up_its_own_pages(device: Device) -> None:
    pool = make_pool(4, quotas=Quotas(default=2 * PAGE))
    for i in range(2):
        put(pool, ref(i, "a"), device, float(i))
    put(pool, ref(0, "b"), device, 0.0)
    assert put(pool, ref(2, "a"), device, 5.0)
    assert pool.where(name(0, "a"), "a") is Where.MISS
    assert pool.where(name(0, "b"), "b") is Where.HOST
    pool.pin([name(1, "a"), name(2, "a")])
    assert not put(pool, ref(3, "a"), device, 6.0)
    assert pool.check() == []
    pool.close()


def test_clear_keeps_what_requests_need(device: Device) -> None:
    pool = make_pool(3)
    for i in range(3):
        put(pool, ref(i), device)
    pool.pin([name(0)])
    pool.clear()
    assert [pool.where(name(i), "t") for i in range(3)] == [Where.HOST, Where.MISS, Where.MISS]
    pool.close()


def test_a_pool_that_holds_no_page_is_refused() -> None:
    with pytest.raises(ConfigError, match="holds no page"):
        HostPool(HostMemory(PAGE), PAGE, Metrics())


_READER = """
import sys
from pathlib import Path
from forebay.fabric.pool_reader import PoolReader
reader = PoolReader(Path(sys.argv[1]))
found = reader.read(bytes.fromhex(sys.argv[2]), sys.argv[3])
print("none" if found is None else found.hex())
"""


def read_elsewhere(path: Path, page: bytes, tenant: str) -> str:
    command = [sys.executable, "-c", _READER, str(path), page.hex(), tenant]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("named", [False, True])
def test_another_process_maps_the_pool(device: Device, tmp_path: Path, named: bool) -> None:
    memory = HostMemory(data_start(2) + 2 * PAGE, path=tmp_path if named else None)
    pool = HostPool(memory, PAGE, Metrics())
    put(pool, ref(1), device)
    assert read_elsewhere(pool.path, name(1), "t") == content(name(1)).hex()
    assert read_elsewhere(pool.path, name(1), "other") == "none"
    if named:
        assert pool.path.stat().st_mode & 0o777 == 0o600
    pool.close()
    assert list(tmp_path.iterdir()) == []


def test_a_reader_never_sees_damaged_or_evicted_pages(device: Device) -> None:
    pool = make_pool(1)
    put(pool, ref(1), device)
    reader = PoolReader(pool.path)
    assert reader.read(name(1), "t") == content(name(1))
    damage_pool(pool.path, name(1), byte=0)
    assert reader.read(name(1), "t") is None
    put(pool, ref(2), device, 9.0)
    assert reader.read(name(1), "t") is None
    assert reader.read(name(2), "t") == content(name(2))
    pool.close()


def test_a_file_that_is_there_already_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    with pytest.raises(ConfigError, match="File exists"):
        HostPool(HostMemory(1 << 20, path=precious), PAGE, Metrics())
    assert precious.read_bytes() == b"mine"


def test_files_of_killed_servers_are_removed_and_those_of_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "forebay-kv-1").write_bytes(b"left behind")
    first = HostPool(HostMemory(1 << 20, path=tmp_path), PAGE, Metrics())
    moved = first.path.rename(tmp_path / "forebay-kv-2")
    second = HostPool(HostMemory(1 << 20, path=tmp_path), PAGE, Metrics())
    assert sorted(tmp_path.iterdir()) == sorted([moved, second.path])
    second.close()
    first.close()


def test_a_numa_node_is_a_wish(caplog: pytest.LogCaptureFixture) -> None:
    pool = HostPool(HostMemory(1 << 20, numa=1000), PAGE, Metrics())
    assert "NUMA node 1000" in caplog.text
    pool.close()


def test_a_path_that_is_no_place_for_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't have"):
        HostPool(HostMemory(1 << 20, path=tmp_path / "missing" / "file"), PAGE, Metrics())
