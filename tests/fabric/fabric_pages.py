"""Small pages whose bytes follow from their ids, and tiers to put them into."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from forebay.fabric.checksum import address_of, page_checksum
from forebay.fabric.disk_store import DiskStore
from forebay.fabric.extents import ExtentFiles
from forebay.fabric.host_pool import HostPool
from forebay.fabric.memory import HostMemory
from forebay.fabric.metrics import Metrics
from forebay.fabric.pool_layout import data_start
from forebay.fabric.protocol import StoredPage
from forebay.kv.quota import Quotas
from forebay.kv.tiers import PageRef

PAGE = 4096
ROOT = b"r" * 32


def name(number: int | str, tenant: str = "t") -> bytes:
    """A page id."""
    return hashlib.blake2b(f"{tenant}/{number}".encode(), digest_size=32).digest()


def ref(
    number: int | str,
    tenant: str = "t",
    *,
    parent: bytes = ROOT,
    retention: str = "chat",
    end: int = 16,
) -> PageRef:
    """A page of `tenant`, by default the first of its sequence."""
    return PageRef(name(number, tenant), parent, tenant, retention, end)


def chain(count: int, tenant: str = "t", *, label: str = "", retention: str = "chat") -> list[PageRef]:
    """The pages of one sequence."""
    refs: list[PageRef] = []
    for i in range(count):
        parent = refs[-1].id if refs else ROOT
        refs.append(ref(f"{label}{i}", tenant, parent=parent, retention=retention, end=16 * (i + 1)))
    return refs


def content(page: bytes, size: int = PAGE) -> bytes:
    """What the page with this id holds."""
    return hashlib.shake_128(page).digest(size)


def stored(page: PageRef, size: int = PAGE) -> StoredPage:
    """The page as it is given to a disk tier."""
    data = content(page.id, size)
    return StoredPage(page, page_checksum(page.id, data), memoryview(data))


class Device:
    """Memory of an engine: pages by number."""

    def __init__(self, pages: int, size: int = PAGE) -> None:
        self._size = size
        self._memory = memoryview(bytearray(pages * size))
        self._base = address_of(self._memory)

    def address(self, number: int) -> int:
        """Where a page lies."""
        return self._base + number * self._size

    def write(self, number: int, page: bytes) -> int:
        """Put the content of a page id there; returns the address."""
        self._memory[number * self._size : (number + 1) * self._size] = content(page, self._size)
        return self.address(number)

    def read(self, number: int) -> bytes:
        """What lies there."""
        return bytes(self._memory[number * self._size : (number + 1) * self._size])


def make_pool(
    slots: int, metrics: Metrics | None = None, *, size: int = PAGE, quotas: Quotas | None = None
) -> HostPool:
    """A pool of exactly so many slots."""
    memory = HostMemory(data_start(slots) + slots * size)
    pool = HostPool(memory, size, metrics or Metrics(), quotas=quotas)
    assert pool.slots == slots
    return pool


def put(pool: HostPool, page: PageRef, device: Device, now: float = 0.0) -> bool:
    """Write a page through; False when there was no room (or it was there)."""
    slot = pool.reserve(page, now)
    if slot is None:
        return False
    with slot:
        slot.fill(device.write(0, page.id))
        slot.commit()
    return True


def read_all(store: DiskStore, pages: Sequence[PageRef], now: float = 0.0) -> list[bytes | None]:
    """The bytes of each page, None where the store has none or gives none."""
    found: list[bytes | None] = []
    for page in pages:
        lease = store.lease(page.id, page.tenant, now)
        if lease is None:
            found.append(None)
            continue
        with lease:
            buffer = memoryview(bytearray(lease.place.size))
            found.append(bytes(buffer) if store.read([lease], [buffer]) == [True] else None)
    return found


def no_punching(folder: Path, extent_bytes: int) -> ExtentFiles:
    """Extents on a file system that can't punch holes."""
    return ExtentFiles(folder, extent_bytes, punch=False)


def disk_usage(folder: Path) -> int:
    """Bytes of disk under a folder."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
