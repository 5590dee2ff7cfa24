"""Brings pages up: host pool → device, and disk → device. One call does one job, piece by piece, a few at a time."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from forebay.core.copying import CopyBytes, plain_copy
from forebay.fabric.checksum import memory_at
from forebay.fabric.common_memory import share_pages
from forebay.fabric.errors import TierError
from forebay.fabric.host_pool import HostPool
from forebay.fabric.jobs import Loaded, LoadJob
from forebay.fabric.lease import DiskLease, Lease, copy_pages
from forebay.fabric.metrics import Metrics
from forebay.fabric.protocol import StorageTier
from forebay.kv.identity import PAGE_TOKENS
from forebay.kv.tiers import PageRef

log = logging.getLogger(__name__)

_PENDING_S = 30.0
"""How long a copy that another thread makes is waited for."""


@dataclass(slots=True)
class _Piece:
    """What a part of a job came to."""

    wanted: int
    host: list[PageRef]
    disk: int = 0
    host_s: float = 0.0
    disk_s: float = 0.0

    @property
    def done(self) -> int:
        return len(self.host) + self.disk


class Loader:
    """Knows the tiers and has threads; holds nothing between jobs. One thread calls `run`, one job after the other."""

    def __init__(
        self,
        pool: HostPool,
        disk: StorageTier | None,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        name: str,
        threads: int,
        piece_bytes: int,
        copy: CopyBytes = plain_copy,
    ) -> None:
        """`threads` pieces of a job are under way at a time. A piece are pages of so many bytes (one page at least),
        read from disk with one system call where they are neighbours. `copy` copies those of the host pool, unless
        it has its memory in common with the device.
        """
        self._pool = pool
        self._disk = disk
        self._metrics = metrics
        self._clock = clock
        self._threads = threads
        self._copy = copy
        self._workers = ThreadPoolExecutor(threads, f"forebay-{name}")
        self._step = max(1, piece_bytes // pool.page_bytes)

    def close(self) -> None:
        """End the threads."""
        self._workers.shutdown()

    def run(self, job: LoadJob) -> Loaded:
        """Load until the end, a page that can't be had, or a cancellation. Pages behind the first that is missing may
        have been written to; only the leading ones count.
        """
        total = _Piece(len(job.refs), [])
        began = time.monotonic()
        try:
            with closing(self._pieces(job)) as pieces:
                for piece in pieces:
                    total.host += piece.host
                    total.disk += piece.disk
                    total.host_s += piece.host_s
                    total.disk_s += piece.disk_s
                    if piece.done < piece.wanted:
                        break
        except (TierError, OSError) as error:
            log.warning("a load ended after %d of %d pages: %s", total.done, len(job.refs), error)
        finally:
            for lease in filter(None, job.leases):
                lease.release()
        ended = time.monotonic()
        self._count(total, job.refs[: total.done], ended - began)
        seconds = ended - job.asked
        return Loaded(job.ticket, total.done, len(job.refs), len(total.host), total.disk, seconds, job.addresses)

    def _pieces(self, job: LoadJob) -> Generator[_Piece, None, None]:
        """The parts of a job in order, the next ones being loaded meanwhile. When this ends, no thread is at it."""
        step = self._step
        parts = iter([(start, min(start + step, len(job.refs))) for start in range(0, len(job.refs), step)])
        under_way = deque[Future[_Piece]]()
        try:
            under_way.extend(self._workers.submit(self._load, job, *part) for part in islice(parts, self._threads))
            while under_way:
                yield under_way.popleft().result()
                under_way.extend(self._workers.submit(self._load, job, *part) for part in islice(parts, 1))
        finally:
            if under_way:
                job.cancelled.set()
                wait(under_way)

    def _load(self, job: LoadJob, start: int, end: int) -> _Piece:
        """Pages [start, end) of a job, up to the first that can't be had."""
        piece = _Piece(end - start, [])
        while piece.done < piece.wanted and not job.cancelled.is_set():
            at = start + piece.done
            began = time.monotonic()
            count = self._from_host(job, at, end)
            if count:
                piece.host += job.refs[at : at + count]
                piece.host_s += time.monotonic() - began
                continue
            count = self._from_disk(job, at, end)
            piece.disk += count
            piece.disk_s += time.monotonic() - began
            if count == 0:
                break
        return piece

    def _from_host(self, job: LoadJob, start: int, end: int) -> int:
        """Load pages of [start, end) that the host pool has; returns how many leading ones are right.

        Those, and a damaged one behind them, are not leased any more.
        """
        leases = self._host_leases(job, start, end)
        done = 0
        try:
            done = self._bring(leases, job, start)
            return done
        finally:
            for i, lease in enumerate(leases[: done + 1], start):
                job.leases[i] = None
                lease.release()

    def _bring(self, leases: Sequence[Lease], job: LoadJob, start: int) -> int:
        if self._pool.common is not None:
            return share_pages(leases, job.addresses, start, self._pool.common)
        return copy_pages(leases, job.addresses[start : start + len(leases)], self._copy)

    def _host_leases(self, job: LoadJob, start: int, end: int) -> list[Lease]:
        """Of the leading ones of these pages, with their bytes there; they are the job's."""
        leases: list[Lease] = []
        for i in range(start, end):
            lease = job.leases[i] or self._pool.lease(job.refs[i].id, job.refs[i].tenant)
            if lease is None:
                break
            if not lease.wait(_PENDING_S):
                job.leases[i] = None
                lease.release()
                break
            job.leases[i] = lease
            leases.append(lease)
        return leases

    def _from_disk(self, job: LoadJob, start: int, end: int) -> int:
        """Load pages of [start, end) that the host pool lacks; returns how many leading ones are right.

        They are read straight to the device, whose memory is touched in any case: that of the pool may never have been,
        and touching it takes longer than reading.
        """
        if self._disk is None:
            return 0
        leases = self._disk_leases(self._disk, job, start, end)
        if not leases:
            return 0
        try:
            size = self._pool.page_bytes
            buffers = [memory_at(at, size) for at in job.addresses[start : start + len(leases)]]
            return [*self._disk.read(leases, buffers), False].index(False)
        finally:
            for lease in leases:
                lease.release()

    def _disk_leases(self, disk: StorageTier, job: LoadJob, start: int, end: int) -> list[DiskLease]:
        leases: list[DiskLease] = []
        now = self._clock()
        for ref, host in zip(job.refs[start:end], job.leases[start:end], strict=True):
            lease = None if host else disk.lease(ref.id, ref.tenant, now)
            if lease is None:
                break
            leases.append(lease)
        return leases

    def _count(self, total: _Piece, loaded: Sequence[PageRef], seconds: float) -> None:
        """Seconds are those of the job: both tiers have their share of them, as their pieces took."""
        size, host_tokens = self._pool.page_bytes, _tokens(total.host)
        host_s = seconds * total.host_s / (total.host_s + total.disk_s or 1.0)
        self._metrics.count(
            loaded_host=len(total.host),
            loaded_host_tokens=host_tokens,
            loaded_host_bytes=len(total.host) * size,
            loaded_host_s=host_s,
            loaded_disk=total.disk,
            loaded_disk_tokens=_tokens(loaded) - host_tokens,
            loaded_disk_bytes=total.disk * size,
            loaded_disk_s=seconds - host_s,
            loads_failed=int(total.done < total.wanted),
        )


def _tokens(refs: Sequence[PageRef]) -> int:
    return sum((ref.end - 1) % PAGE_TOKENS + 1 for ref in refs)


def take_leases(pool: HostPool, refs: Sequence[PageRef]) -> list[Lease | None]:
    """What the host pool has of these pages, kept there until the load is done."""
    return pool.lease_all(refs)
