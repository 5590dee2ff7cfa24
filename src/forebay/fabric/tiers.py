"""All tiers below the device as one thing: what an engine calls, from its one step thread, without ever waiting.

The engine keeps the device pages and decides what to save, load and pin; here is where that is carried out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from forebay.core.copying import CopyBytes, plain_copy
from forebay.fabric.common_memory import CommonMemory
from forebay.fabric.disk_store import DiskStore
from forebay.fabric.host_pool import HostPool
from forebay.fabric.jobs import Completion
from forebay.fabric.metrics import Metrics, TierCounters
from forebay.fabric.mover import Mover
from forebay.fabric.pacer import Pacer, copy_speed
from forebay.fabric.protocol import StorageTier
from forebay.fabric.tier_config import TierConfig, TierGauges
from forebay.kv.retention import RetentionPolicy
from forebay.kv.tiers import Lookup, PageRef, Where
from forebay.kv.value import Worth

_ROOM_SHARE = 8
"""With less than this part of the host pool to give away, pages of preempted sequences are copied on to disk."""


class KvTiers:
    """Host pool and disk with the threads that move pages between them and the device. A context manager."""

    def __init__(
        self,
        config: TierConfig,
        clock: Callable[[], float] = time.time,
        store: StorageTier | None = None,
        copy: CopyBytes = plain_copy,
        common: CommonMemory | None = None,
    ) -> None:
        """Open the tiers. `clock` gives seconds since 1970; `store` is what lies below the host pool instead of the
        disk, and is closed with the tiers; `copy` copies pages between the pool and the device, unless they have their
        memory in `common`. Raises ConfigError when memory or folder can't be had.
        """
        self.config = config
        self.retention = RetentionPolicy(config.retention)
        self._clock = clock
        self._closed = False
        self._metrics = Metrics()
        self._pool = HostPool(
            config.host,
            config.page_bytes,
            self._metrics,
            worth=Worth(config.host_half_life_s),
            retention=self.retention,
            quotas=config.host_quotas,
            common=common,
        )
        try:
            self._disk = store or self._open_disk(config)
        except BaseException:
            self._pool.close()
            raise
        if self._disk is not None:
            self._disk.on_drop = lambda page: self._pool.mark_unclean([page])
        pacer = Pacer(config.copy_share * copy_speed(time.perf_counter))
        self._mover = Mover(
            self._pool, self._disk, self._metrics, clock, pacer=pacer, copy=copy, verify_at_rest=config.verify_at_rest
        )

    def _open_disk(self, config: TierConfig) -> DiskStore | None:
        if config.cache_dir is None:
            return None
        return DiskStore(
            config.cache_dir,
            config.cache_bytes,
            self._metrics,
            self._clock(),
            retention=self.retention,
            worth=Worth(config.disk_half_life_s),
            quotas=config.disk_quotas,
        )

    def lookup(self, pages: Iterable[bytes], tenant: str) -> Lookup:
        """Where the leading pages of a prefix are, up to the first that this tenant has in no tier."""
        now, places = self._clock(), []
        for page in pages:
            place = self._pool.where(page, tenant)
            if place is Where.MISS and self._disk is not None:
                place = self._disk.where(page, tenant, now)
            if place is Where.MISS:
                break
            places.append(place)
        return Lookup(places)

    def missing(self, pages: Sequence[bytes], tenant: str) -> list[int]:
        """The places in `pages` of those that this tenant has in no tier."""
        places = self._pool.missing(pages, tenant)
        if self._disk is None:
            return places
        now = self._clock()
        return [i for i in places if self._disk.where(pages[i], tenant, now) is Where.MISS]

    def save(self, ref: PageRef, address: int, tag: int) -> bool:
        """Write a full page through to the host pool, and to disk if its class says so, in the background.

        With memory in common the pool refers to where the page lies, and has no copy: once it does, the device may
        change those bytes no more. The bytes at `address` must not change before `poll` gives the `Saved` with this
        `tag`. False, and no completion, when too many pages wait: the page is not written through.
        """
        return self._mover.save(ref, address, tag)

    def keep(self, pages: Sequence[bytes], new: Sequence[PageRef]) -> bool:
        """Running sequences are to leave the device: pin their pages, with room for the `new` ones, which no tier has.

        All or none: False, with nothing pinned, when not all find room; making it has begun, so it pays to ask again.
        The room is used by `save_now` or by a `save` that waits.
        """
        self.pin(pages)
        if self._mover.saver.promise([ref for ref in new if self._place(ref) is Where.MISS]):
            return True
        self.unpin(pages)
        self.cascade()
        return False

    def save_now(self, ref: PageRef, address: int) -> bool:
        """Save a page to the host pool in this call (0.1 ms or less for 400 KB), unless it is below already. False when
        there is no room for it: it was not promised any."""
        return self._mover.saver.save_now(ref, address) or self._place(ref) is not Where.MISS

    def fulfil(self, page: bytes, address: int) -> None:
        """A background copy was given up: if its page was promised room, copy it in this call."""
        self._mover.saver.fulfil(page, address)

    def load(self, refs: Sequence[PageRef], addresses: Sequence[int]) -> int | None:
        """Load leading pages of a prefix to device memory in the background; the ticket of the `Loaded` to come.

        The memory belongs to the load until then; with memory in common, the frames must be the device's alone, and
        `Loaded` says in which ones its pages are instead. None when too many loads wait.
        """
        return self._mover.load(refs, addresses)

    def cancel(self, ticket: int) -> None:
        """A load is wanted no more. Its `Loaded` comes all the same."""
        self._mover.cancel(ticket)

    def poll(self) -> list[Completion]:
        """What ended since the last call."""
        return self._mover.poll()

    def fileno(self) -> int:
        """Readable while `poll` has something to give: for the poller of an idle worker."""
        return self._mover.fileno()

    def used(self, pages: Sequence[bytes], retention: str) -> None:
        """A request of this retention class read or wrote these pages, on the device or below: they are kept longer."""
        now = self._clock()
        self._pool.used(pages, retention, now)
        if self._disk is not None:
            self._disk.used(pages, retention, now)

    def pin(self, pages: Sequence[bytes]) -> None:
        """Pages of a live request: at least one tier below keeps each of them until `unpin`. Pins count."""
        if self._disk is not None:
            self._disk.pin(pages)
            self._pool.mark_unclean(self._disk.lacking(pages))
        self._pool.pin(pages)

    def unpin(self, pages: Sequence[bytes]) -> None:
        """Take back one pin of each page. Raises KeyError for a page that has none."""
        self._pool.unpin(pages)
        if self._disk is not None:
            self._disk.unpin(pages)

    def room(self) -> int:
        """How many pages could be kept below now. When pins leave little, copying them to disk begins."""
        room = self._pool.room()
        if room < self._pool.slots // _ROOM_SHARE:
            self.cascade()
        return room

    def capacity(self) -> int:
        """How many pages could be kept below, given time: pinned ones of the host pool are copied on to disk."""
        return self._pool.room() + self._disk_room()

    def room_of(self, tenant: str) -> int | None:
        """How many pages of this tenant its quota allows to be kept below now; None where it has none."""
        return self._pool.room_of(tenant)

    def capacity_of(self, tenant: str) -> int | None:
        """How many pages of this tenant could be kept below, given time; None where it has no quota."""
        in_host = self._pool.room_of(tenant)
        on_disk = None if self._disk is None else self._disk.room_of(tenant, self.config.page_bytes)
        if in_host is None and on_disk is None:
            return None
        rooms = ((self._pool.room(), in_host), (self._disk_room(), on_disk))
        return sum(room if quota is None else min(room, quota) for room, quota in rooms)

    def at_once(self, tenant: str) -> int | None:
        """How many pages of this tenant can be promised room at one time, when all that is pinned of it is on disk;
        None where it has no quota in the host pool. Write-through may have put more of them on disk before, or not:
        with a small quota a page may have to go from the pool before its turn comes."""
        return self.config.host_quotas.pages(tenant, self.config.page_bytes)

    def burden(self, pages: Sequence[bytes], tenant: str) -> int:
        """How much of `room` keeping these pages takes."""
        held = self._pool.burden(pages)
        if self._disk is None:
            return len(held)
        now = self._clock()
        return sum(self._disk.where(page, tenant, now) is Where.MISS for page in held)

    def cascade(self) -> bool:
        """Begin to copy pinned pages on to disk, as far as quotas allow. False when none are, or it takes none."""
        return self._mover.spill_pinned() and not self._mover.disk_refuses

    def missed(self, pages: int) -> None:
        """Count pages of a prompt that were in no tier, the device included."""
        self._metrics.count(misses=pages)

    def clear(self) -> None:
        """Forget every page that no request needs: the host pool's now, the disk's in the background."""
        self._pool.clear()
        if self._disk is not None:
            self._mover.clear_disk()

    def counters(self) -> TierCounters:
        """Counts since the start."""
        return self._metrics.snapshot()

    def gauges(self) -> TierGauges:
        """What is held now."""
        disk = self._disk
        pages, held, on_disk = (0, 0, {}) if disk is None else (disk.pages, disk.disk_bytes, disk.tenant_bytes())
        host = self._pool.gauges()
        names = host.tenant_bytes.keys() | on_disk.keys()
        tenants = {name: (host.tenant_bytes.get(name, 0), on_disk.get(name, 0)) for name in names}
        return TierGauges(host, pages, held, self.config.cache_bytes, tenants)

    @property
    def copies(self) -> bool:
        """Whether pages are copied between the device and the host pool; False where they lie in memory in common."""
        return self._pool.common is None

    def check(self, device: Iterable[int] | None = None) -> list[str]:
        """Recount the book-keeping; empty when all is well. `device` as for `HostPool.check`."""
        return self._pool.check(device)

    def close(self, report: Callable[[float], None] = lambda _: None) -> None:
        """End the threads, write what should be on disk (for 15 s at most), and give the memory back.

        `report` is told the share of the writing that is done, while there is any. Device memory may go only after
        this. Closing twice does nothing.
        """
        if self._closed:
            return
        self._closed = True
        self._mover.close(report)
        if self._disk is not None:
            self._disk.close()
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _disk_room(self) -> int:
        return 0 if self._disk is None or self._mover.disk_refuses else self._disk.room(self.config.page_bytes)

    def _place(self, ref: PageRef) -> Where:
        return next(iter(self.lookup([ref.id], ref.tenant).places), Where.MISS)
