"""The contract of a tier below the host pool (`fabric.protocol`), held to by the disk and by a store that is none."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fabric.fabric_pages import PAGE, Device, chain, content, name, ref, stored
from tests.fabric.memory_tier import MemoryTier

from forebay.fabric.disk_store import DiskStore
from forebay.fabric.faults import damage_file
from forebay.fabric.jobs import Loaded
from forebay.fabric.memory import HostMemory
from forebay.fabric.metrics import Metrics
from forebay.fabric.pool_layout import data_start
from forebay.fabric.protocol import StorageTier
from forebay.fabric.tier_config import TierConfig
from forebay.fabric.tiers import KvTiers
from forebay.kv.identity import PUBLIC
from forebay.kv.retention import DAY_S
from forebay.kv.tiers import Where

Damage = Callable[[], None]


@pytest.fixture(params=["disk", "memory"])
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[StorageTier, Damage]]:
    """A store and what flips a bit in each of its pages."""
    store: StorageTier
    if request.param == "disk":
        store = DiskStore(tmp_path, 4 << 20, Metrics(), 0.0)

        def damage() -> None:
            for extent in (tmp_path / "extents").iterdir():
                for offset in range(0, extent.stat().st_size, PAGE):
                    damage_file(extent, offset)
    else:
        store = memory = MemoryTier()

        def damage() -> None:
            for data in memory.bytes.values():
                data[0] ^= 1

    yield store, damage
    store.close()


def read(store: StorageTier, page: bytes, tenant: str, now: float = 0.0) -> bytes | None:
    lease = store.lease(page, tenant, now)
    if lease is None:
        return None
    with lease:
        buffer = memoryview(bytearray(PAGE))
        return bytes(buffer) if store.read([lease], [buffer]) == [True] else None


def test_what_is_stored_is_read_by_its_tenant_alone(tier: tuple[StorageTier, Damage]) -> None:
    store, _ = tier
    own, public = ref(1, "a"), ref(2, PUBLIC)
    assert store.store([stored(own), stored(public)], 0.0) == [True, True]
    assert store.pages == 2
    assert read(store, own.id, "a") == content(own.id)
    assert read(store, public.id, "a") == read(store, public.id, "b") == content(public.id)
    assert store.where(own.id, "b", 0.0) is Where.MISS
    assert read(store, own.id, "b") is None
    assert store.lacking([own.id, name(9), public.id]) == [name(9)]
    assert store.tenant_bytes() == {"a": PAGE, PUBLIC: PAGE}
    assert sorted(store.names()) == sorted([(own.id, "a"), (public.id, PUBLIC)])


def test_damage_is_a_miss_and_told(tier: tuple[StorageTier, Damage]) -> None:
    store, damage = tier
    heard: list[bytes] = []
    store.on_drop = heard.append
    page = ref(1)
    store.store([stored(page)], 0.0)
    damage()
    assert read(store, page.id, "t") is None
    assert heard == [page.id]
    assert store.where(page.id, "t", 0.0) is Where.MISS
    assert store.store([stored(page)], 0.0) == [True], "it can be stored again"
    assert read(store, page.id, "t") == content(page.id)


def test_pins_outlast_the_page_s_time(tier: tuple[StorageTier, Damage]) -> None:
    store, _ = tier
    kept, late = ref(1), ref(2)
    store.pin([kept.id])
    store.store([stored(kept), stored(late)], 0.0)
    store.sweep(8 * DAY_S)
    assert [page for page, _ in store.names()] == [kept.id]
    store.unpin([kept.id])
    assert store.where(kept.id, "t", 8 * DAY_S) is Where.MISS
    store.sweep(8 * DAY_S)
    assert store.pages == 0
    with pytest.raises(KeyError):
        store.unpin([kept.id])


def test_what_is_pinned_takes_room_from_what_may_be(tier: tuple[StorageTier, Damage]) -> None:
    store, _ = tier
    pages = chain(3)
    store.store([stored(page) for page in pages], 0.0)
    before = store.room(PAGE)
    assert before > 3
    ids = [page.id for page in pages]
    store.pin(ids)
    assert store.room(PAGE) == before - 3
    store.unpin(ids)
    assert store.room(PAGE) == before


def test_clear_drops_all(tier: tuple[StorageTier, Damage]) -> None:
    store, _ = tier
    store.store([stored(page) for page in chain(3)], 0.0)
    assert store.clear() == 3
    assert store.pages == 0


def open_tiers(store: MemoryTier) -> KvTiers:
    config = TierConfig(PAGE, HostMemory(data_start(8) + 8 * PAGE), copy_share=1.0)
    return KvTiers(config, lambda: 0.0, store)


def completions(tiers: KvTiers, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        assert select.select([tiers.fileno()], [], [], 20.0)[0]
        found += tiers.poll()
    return found


def test_tiers_work_over_a_store_that_is_no_disk() -> None:
    store, device, pages = MemoryTier(), Device(8), chain(4)
    ids = [page.id for page in pages]
    with open_tiers(store) as tiers:
        for i, page in enumerate(pages):
            assert tiers.save(page, device.write(i, page.id), i)
        completions(tiers, 4)
    assert store.pages == 4, "what was written through is in the store when the tiers are closed"
    store.bytes[ids[3]][7] ^= 1
    with open_tiers(store) as tiers:
        assert tiers.lookup(ids, "t").places == [Where.DISK] * 4
        assert tiers.lookup(ids, "other").pages == 0
        tiers.load(pages, [device.address(4 + i) for i in range(4)])
        (done,) = completions(tiers, 1)
        assert isinstance(done, Loaded)
        assert (done.pages, done.disk) == (3, 3), "the damaged page is a miss"
        assert [device.read(4 + i) for i in range(3)] == [content(page) for page in ids[:3]]
        store.failing = True
        assert tiers.save(ref("new"), device.write(0, ref("new").id), 0)
        completions(tiers, 1)
        assert tiers.lookup([ref("new").id], "t").pages == 1, "a store that fails costs the host pool nothing"
