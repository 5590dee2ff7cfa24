"""A tier below the host pool that lies in this process's memory: what a remote store would be, without a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from forebay.fabric.errors import TierError
from forebay.fabric.extents import Place
from forebay.fabric.lease import DiskLease
from forebay.fabric.protocol import StoredPage
from forebay.kv.retention import RetentionPolicy
from forebay.kv.tiers import PageRef, Where, readable


class MemoryTier:
    """At most `limit` pages; the one unused longest goes first. `failing` makes every write an error."""

    def __init__(self, limit: int = 1000) -> None:
        self.on_drop: Callable[[bytes], None] = lambda _: None
        self.failing = False
        self.values: dict[str, object] = {}
        self.bytes: dict[bytes, bytearray] = {}
        self._limit = limit
        self._refs: dict[bytes, tuple[PageRef, bytes]] = {}
        self._last_use: dict[bytes, float] = {}
        self._pins: Counter[bytes] = Counter()
        self._retention = RetentionPolicy()

    @property
    def pages(self) -> int:
        return len(self._refs)

    @property
    def disk_bytes(self) -> int:
        return sum(map(len, self.bytes.values()))

    def where(self, page: bytes, tenant: str, now: float) -> Where:
        found = self._refs.get(page)
        if found is None or not readable(found[0].tenant, tenant) or self._late(page, now):
            return Where.MISS
        return Where.DISK

    def lacking(self, pages: Iterable[bytes]) -> list[bytes]:
        return [page for page in pages if page not in self._refs]

    def used(self, pages: Iterable[bytes], retention: str, now: float) -> None:
        for page in pages:
            if page in self._refs:
                self._last_use[page] = now

    def pin(self, pages: Sequence[bytes]) -> None:
        self._pins.update(pages)

    def unpin(self, pages: Iterable[bytes]) -> None:
        for page in pages:
            if not self._pins[page]:
                raise KeyError(page)
            self._pins[page] -= 1

    def room(self, page_bytes: int) -> int:
        return self._limit - sum(self._pins[page] > 0 for page in self._refs)

    def room_of(self, tenant: str, page_bytes: int) -> int | None:
        return None

    def lease(self, page: bytes, tenant: str, now: float) -> DiskLease | None:
        if self.where(page, tenant, now) is Where.MISS:
            return None
        ref, checksum = self._refs[page]
        return DiskLease(ref, Place(0, 0, len(self.bytes[page])), checksum, lambda: None, partial(self._drop, page))

    def read(self, leases: Sequence[DiskLease], buffers: Sequence[memoryview]) -> list[bool]:
        right = []
        for lease, buffer in zip(leases, buffers, strict=True):
            data = self.bytes.get(lease.ref.id, b"")
            buffer[: len(data)] = data
            right.append(lease.check(buffer, len(data)))
        return right

    def store(self, pages: Sequence[StoredPage], now: float) -> list[bool]:
        if self.failing:
            raise TierError("the store does not answer")
        return [self._keep(page, now) for page in pages]

    def sweep(self, now: float) -> None:
        for page in [page for page in self._refs if self._late(page, now)]:
            self._forget(page)

    def clear(self) -> int:
        count = len(self._refs)
        for page in list(self._refs):
            self._forget(page)
        return count

    def names(self) -> list[tuple[bytes, str]]:
        return [(page, ref.tenant) for page, (ref, _) in self._refs.items()]

    def tenant_bytes(self) -> dict[str, int]:
        held: Counter[str] = Counter()
        for page, (ref, _) in self._refs.items():
            held[ref.tenant] += len(self.bytes[page])
        return dict(held)

    def save_values(self, values: Mapping[str, object]) -> None:
        self.values |= values

    def close(self) -> None:
        pass

    def _keep(self, page: StoredPage, now: float) -> bool:
        if page.ref.id in self._refs:
            return True
        if len(self._refs) >= self._limit:
            free = [name for name in self._refs if not self._pins[name]]
            if not free:
                return False
            self._forget(min(free, key=self._last_use.__getitem__))
        self._refs[page.ref.id] = page.ref, page.checksum
        self.bytes[page.ref.id], self._last_use[page.ref.id] = bytearray(page.data), now
        return True

    def _late(self, page: bytes, now: float) -> bool:
        ref, _ = self._refs[page]
        return not self._pins[page] and self._retention.expired(ref.retention, self._last_use[page], now)

    def _forget(self, page: bytes) -> None:
        del self._refs[page], self.bytes[page], self._last_use[page]

    def _drop(self, page: bytes, reason: str) -> None:
        if page in self._refs:
            self._forget(page)
            self.on_drop(page)
