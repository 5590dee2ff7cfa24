"""Copies pages up: host pool → device, and disk → device. One call does one job, in the caller's thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from forebay.fabric.checksum import memory_at
from forebay.fabric.errors import CorruptPageError, TierError
from forebay.fabric.host_pool import HostPool
from forebay.fabric.jobs import Loaded, LoadJob
from forebay.fabric.lease import DiskLease, Lease
from forebay.fabric.metrics import Metrics
from forebay.fabric.protocol import StorageTier
from forebay.kv.identity import PAGE_TOKENS
from forebay.kv.tiers import PageRef

log = logging.getLogger(__name__)

_RUN = 32
"""Pages read from disk in one go."""
_AHEAD = 4
"""Runs that the system is told of at a time, the one that is read included."""
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
        done, host, disk_s = 0, [], 0.0
        began = time.monotonic()
        try:
            while done < len(job.refs) and not job.cancelled.is_set():
                if self._from_host(job, done):
                    host.append(job.refs[done])
                    done += 1
                    continue
                asked = time.monotonic()
                count = self._from_disk(job, done)
                disk_s += time.monotonic() - asked
                if count == 0:
                    break
                done += count
        except (TierError, OSError) as error:
            log.warning("a load ended after %d of %d pages: %s", done, len(job.refs), error)
        finally:
            for lease in filter(None, job.leases):
                lease.release()
        ended = time.monotonic()
        self._count(host, job.refs[:done], ended - began - disk_s, disk_s)
        if done < len(job.refs):
            self._metrics.count(loads_failed=1)
        return Loaded(job.ticket, done, len(job.refs), len(host), done - len(host), ended - job.asked)

    def _from_host(self, job: LoadJob, i: int) -> bool:
        lease = job.leases[i] or self._pool.lease(job.refs[i].id, job.refs[i].tenant)
        job.leases[i] = None
        if lease is None:
            return False
        with lease:
            try:
                if not lease.wait(_PENDING_S):
                    return False
                lease.copy_to(job.addresses[i])
            except CorruptPageError:
                return False
        return True

    def _from_disk(self, job: LoadJob, start: int) -> int:
        """Load a run of pages that begins at `start`; returns how many leading ones are right.

        They are read straight to the device, whose memory is touched in any case: that of the pool may never have been,
        and touching it takes longer than reading. The runs after this one begin to be read meanwhile.
        """
        if self._disk is None:
            return 0
        leases = self._disk_leases(job, start)
        if not leases:
            return 0
        try:
            self._disk.prefetch(leases)
            run = leases[:_RUN]
            size = self._pool.page_bytes
            buffers = [memory_at(at, size) for at in job.addresses[start : start + len(run)]]
            return [*self._disk.read(run, buffers), False].index(False)
        finally:
            for lease in leases:
                lease.release()

    def _disk_leases(self, job: LoadJob, start: int) -> list[DiskLease]:
        """Of this run and those that are read ahead."""
        leases: list[DiskLease] = []
        now, end = self._clock(), start + _AHEAD * _RUN
        for ref, host in zip(job.refs[start:end], job.leases[start:end], strict=True):
            lease = None if host or self._disk is None else self._disk.lease(ref.id, ref.tenant, now)
            if lease is None:
                break
            leases.append(lease)
        return leases

    def _count(self, host: Sequence[PageRef], loaded: Sequence[PageRef], host_s: float, disk_s: float) -> None:
        size, disk = self._pool.page_bytes, len(loaded) - len(host)
        host_tokens = _tokens(host)
        self._metrics.count(
            loaded_host=len(host),
            loaded_host_tokens=host_tokens,
            loaded_host_bytes=len(host) * size,
            loaded_host_s=host_s,
            loaded_disk=disk,
            loaded_disk_tokens=_tokens(loaded) - host_tokens,
            loaded_disk_bytes=disk * size,
            loaded_disk_s=disk_s,
        )


def _tokens(refs: Sequence[PageRef]) -> int:
    return sum((ref.end - 1) % PAGE_TOKENS + 1 for ref in refs)


def take_leases(pool: HostPool, refs: Sequence[PageRef]) -> list[Lease | None]:
    """What the host pool has of these pages, kept there until the load is done."""
    return pool.lease_all(refs)
