"""Copies pages up: host pool → device, and disk → host pool → device. One call does one job, in the caller's thread."""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable, Sequence

from forebay.fabric.checksum import address_of, memory_at
from forebay.fabric.errors import CorruptPageError, TierError
from forebay.fabric.host_pool import HostPool
from forebay.fabric.jobs import Loaded, LoadJob
from forebay.fabric.lease import DiskLease, Lease, Reservation
from forebay.fabric.metrics import Metrics
from forebay.fabric.protocol import StorageTier
from forebay.kv.identity import PAGE_TOKENS
from forebay.kv.tiers import PageRef

log = logging.getLogger(__name__)

_RUN = 32
"""Pages read from disk in one go."""
_PENDING_S = 30.0
"""How long a copy that another thread makes is waited for."""


class Loader:
    """Knows the tiers; holds nothing between jobs."""

    def __init__(self, pool: HostPool, disk: StorageTier | None, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._disk = disk
        self._metrics = metrics
        self._clock = clock

    def run(self, job: LoadJob) -> Loaded:
        """Load page by page until the end, a page that can't be had, or a cancellation."""
        done, host = 0, 0
        try:
            while done < len(job.refs) and not job.cancelled.is_set():
                if self._from_host(job, done):
                    done, host = done + 1, host + 1
                elif (count := self._from_disk(job, done)) > 0:
                    done += count
                else:
                    break
        except (TierError, OSError) as error:
            log.warning("a load ended after %d of %d pages: %s", done, len(job.refs), error)
        finally:
            for lease in filter(None, job.leases):
                lease.release()
        if done < len(job.refs):
            self._metrics.count(loads_failed=1)
        return Loaded(job.ticket, done, len(job.refs), host, done - host, time.monotonic() - job.asked)

    def _from_host(self, job: LoadJob, i: int) -> bool:
        lease = job.leases[i] or self._pool.lease(job.refs[i].id, job.refs[i].tenant)
        job.leases[i] = None
        if lease is None:
            return False
        with lease:
            began = time.monotonic()
            if not lease.wait(_PENDING_S):
                return False
            try:
                lease.copy_to(job.addresses[i])
            except CorruptPageError:
                return False
            self._count("host", [lease.ref], lease.nbytes, time.monotonic() - began)
        return True

    def _from_disk(self, job: LoadJob, start: int) -> int:
        """Load a run of pages that begins at `start`; returns how many leading ones are right."""
        if self._disk is None:
            return 0
        leases = self._disk_leases(job, start)
        if not leases:
            return 0
        began = time.monotonic()
        try:
            count = self._read(self._disk, leases, job.addresses[start : start + len(leases)])
        finally:
            for lease in leases:
                lease.release()
        refs = job.refs[start : start + count]
        self._count("disk", refs, count * self._pool.page_bytes, time.monotonic() - began)
        return count

    def _disk_leases(self, job: LoadJob, start: int) -> list[DiskLease]:
        leases: list[DiskLease] = []
        now = self._clock()
        for ref, host in zip(job.refs[start : start + _RUN], job.leases[start : start + _RUN], strict=True):
            lease = None if host or self._disk is None else self._disk.lease(ref.id, ref.tenant, now)
            if lease is None:
                break
            leases.append(lease)
        return leases

    def _read(self, disk: StorageTier, leases: list[DiskLease], addresses: Sequence[int]) -> int:
        """Read into slots of the host pool where there is room, else straight to the device."""
        now = self._clock()
        slots = [self._pool.reserve(lease.ref, now, clean=True) for lease in leases]
        size = self._pool.page_bytes
        buffers = [slot.buffer if slot else memory_at(at, size) for slot, at in zip(slots, addresses, strict=True)]
        right: list[bool] = []
        try:
            right = disk.read(leases, buffers)
        finally:
            count = [*right, False].index(False)
            for i, (slot, lease) in enumerate(zip(slots, leases, strict=True)):
                if slot is not None:
                    _settle(slot, lease, addresses[i], right=i < len(right) and right[i], wanted=i < count)
        return count

    def _count(self, tier: str, refs: Sequence[PageRef], size: int, seconds: float) -> None:
        tokens = sum((ref.end - 1) % PAGE_TOKENS + 1 for ref in refs)
        name = f"loaded_{tier}"
        amounts = {name: len(refs), f"{name}_tokens": tokens, f"{name}_bytes": size, f"{name}_s": seconds}
        self._metrics.count(**amounts)


def _settle(slot: Reservation, lease: DiskLease, address: int, *, right: bool, wanted: bool) -> None:
    """Pass a page on from its slot to the device, and keep it in the pool if it is right."""
    if not right:
        slot.release()
        return
    if wanted:
        ctypes.memmove(address, address_of(slot.buffer), len(slot.buffer))
    slot.commit(lease.checksum)


def take_leases(pool: HostPool, refs: Sequence[PageRef]) -> list[Lease | None]:
    """What the host pool has of these pages, kept there until the load is done."""
    return [pool.lease(ref.id, ref.tenant) for ref in refs]
