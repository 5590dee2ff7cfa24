"""The threads that move pages, and the only place that waits for copies. The step loop asks, polls and never waits.

Four threads: write-through; spill and housekeeping of the disk; loads from the host pool; loads that need the disk. The
last two have a few helpers each (`Loader`). Their results queue up until `poll`. Ended by `close`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from forebay.core.copying import CopyBytes, plain_copy
from forebay.fabric.errors import TierError
from forebay.fabric.host_pool import HostPool
from forebay.fabric.jobs import Completion, Loaded, LoadJob, Saved, SaveJob
from forebay.fabric.loader import Loader, take_leases
from forebay.fabric.metrics import Metrics, as_numbers
from forebay.fabric.pacer import Pacer
from forebay.fabric.protocol import StorageTier
from forebay.fabric.saver import BATCH, Saver, Spiller
from forebay.fabric.scrub import Scrubber
from forebay.fabric.worker import Worker
from forebay.kv.tiers import PageRef

log = logging.getLogger(__name__)

_SWEEP_EVERY_S = 30.0
_IDLE_S = 1.0
"""How long the disk's thread waits for something to do, and so how long a page waits for others to be written with."""
_REPORT_EVERY_S = 0.5
_HOST_READERS = 2
"""Threads that copy for one load: one copies and checks at 60 % of memcpy, two at nearly all of it."""
_DISK_READERS = 4
"""Reads of one load that are under way: what waits for the first touch of memory, or checks, keeps no disk waiting."""


class Mover:
    """Owns the threads and what waits for them.

    Bounds: `save_bound` pages wait for write-through (one more is not written through), `load_bound` loads wait (one
    more is refused, and computed instead). Completions are bounded by what was asked for.
    """

    def __init__(
        self,
        pool: HostPool,
        disk: StorageTier | None,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        pacer: Pacer | None = None,
        copy: CopyBytes = plain_copy,
        save_bound: int = 1024,
        load_bound: int = 64,
        verify_at_rest: bool = False,
    ) -> None:
        """`clock` gives seconds since 1970, for ages of pages. `pacer` bounds the speed of write-through, `copy` copies
        pages from and to the device.
        """
        self.saver = Saver(pool, metrics, clock, copy)
        self._pool = pool
        self._disk = disk
        self._metrics = metrics
        self._clock = clock
        self._pacer = pacer
        loader = partial(Loader, pool, disk, metrics, clock, copy=copy)
        self._host_loader = loader(name="copies", threads=_HOST_READERS, piece_bytes=16 << 20)
        self._disk_loader = loader(name="reads", threads=_DISK_READERS, piece_bytes=8 << 20)
        self._spiller = None if disk is None else Spiller(pool, disk, metrics, clock)
        self._spill_at = min(BATCH, max(1, pool.slots // 4))
        self._scrubber = Scrubber(pool, disk, metrics, clock) if verify_at_rest else None
        self._completions: deque[Completion] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = threading.Event()
        self._housework = threading.Event()
        self._clear_wanted = threading.Event()
        self._loads: dict[int, LoadJob] = {}
        self._next_ticket = 1
        self._save_worker = Worker("write-through", self._save, save_bound)
        self._host_worker = Worker("host-loads", partial(self._load, self._host_loader), load_bound)
        self._disk_worker = Worker("disk-loads", partial(self._load, self._disk_loader), load_bound)
        self._keeper = threading.Thread(target=self._keep, name="forebay-spill", daemon=True)
        self._keeper.start()

    def save(self, ref: PageRef, address: int, tag: int) -> bool:
        """Write a page through in the background. Its memory must not change before the `Saved` with this tag.

        False, and no completion, when the queue is at its bound.
        """
        queued = self._save_worker.offer(SaveJob(ref, address, tag))
        if not queued:
            self._metrics.count(save_skipped_queue=1)
        return queued

    def load(self, refs: Sequence[PageRef], addresses: Sequence[int]) -> int | None:
        """Load pages in the background; the ticket of the `Loaded` to come, None when too many loads wait.

        The memory at `addresses` belongs to the load until then.
        """
        asked = time.monotonic()
        leases = take_leases(self._pool, refs)
        job = LoadJob(self._next_ticket, refs, [*addresses], leases, asked)
        worker = self._disk_worker if None in leases else self._host_worker
        self._loads[job.ticket] = job
        if not worker.offer(job):
            del self._loads[job.ticket]
            for lease in filter(None, leases):
                lease.release()
            return None
        self._next_ticket += 1
        return job.ticket

    def cancel(self, ticket: int) -> None:
        """Load no more than is under way. The `Loaded` comes all the same."""
        job = self._loads.get(ticket)
        if job is not None:
            job.cancelled.set()

    def poll(self) -> list[Completion]:
        """What ended since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)
        done: list[Completion] = []
        while self._completions:
            done.append(self._completions.popleft())
        for completion in done:
            if isinstance(completion, Loaded):
                self._loads.pop(completion.ticket, None)
        return done

    def fileno(self) -> int:
        """A file descriptor that is readable when `poll` has something, for the poller of an idle loop."""
        return self._wake_fd

    @property
    def disk_refuses(self) -> bool:
        """Whether the disk took none of the pinned pages that it was offered last, quotas of their tenants aside."""
        return self._spiller is not None and self._spiller.refused

    def spill_soon(self) -> None:
        """Let the disk's thread look for work now."""
        self._housework.set()

    def spill_pinned(self) -> bool:
        """Have pinned pages copied on to disk now, as far as their tenants may hold them there. False when there are
        none to copy."""
        if self._spiller is None or not self._pool.spill_pinned(self._spiller.full):
            return False
        self.spill_soon()
        return True

    def clear_disk(self) -> None:
        """Empty the disk tier in the background."""
        self._clear_wanted.set()
        self._housework.set()

    def close(self, report: Callable[[float], None] = lambda _: None, spill_s: float = 15.0) -> None:
        """End the threads: loads stop where they are, write-through copies what waits as fast as it can, and pages that
        should be on disk are written for at most `spill_s` seconds. `report` is told the share that is done, twice a
        second.
        """
        self._closing.set()
        for job in list(self._loads.values()):
            job.cancelled.set()
        self._save_worker.close()
        self.saver.close()
        self._host_worker.close()
        self._disk_worker.close()
        self._host_loader.close()
        self._disk_loader.close()
        self._housework.set()
        self._keeper.join()
        if self._disk is not None and self._spiller is not None:
            self._flush(self._spiller, report, spill_s)
            self._tidy(self._disk)
        os.close(self._wake_fd)

    def _flush(self, spiller: Spiller, report: Callable[[float], None], spill_s: float) -> None:
        total = self._pool.gauges().dirty
        deadline, told = time.monotonic() + spill_s, -_REPORT_EVERY_S
        while (now := time.monotonic()) < deadline and (left := self._pool.gauges().dirty):
            if now - told >= _REPORT_EVERY_S:
                report(1 - left / total if total else 0.0)
                told = now
            spiller.run()

    def _finish(self, completion: Completion) -> None:
        self._completions.append(completion)
        os.eventfd_write(self._wake_fd, 1)

    def _save(self, job: SaveJob) -> None:
        saved = Saved(job.ref.id, job.tag, kept=False)
        began = time.monotonic()
        try:
            saved = self.saver.run(job)
        finally:
            self._finish(saved)
        if not saved.kept:
            self.spill_pinned()
        # One commit for many pages: writing each by itself takes twice the time from the steps.
        if self._spiller is not None and self._pool.dirty >= self._spill_at:
            self.spill_soon()
        if self._pacer is not None:
            self._closing.wait(max(0.0, self._pacer.delay(self._pool.page_bytes, began) - (time.monotonic() - began)))

    def _load(self, loader: Loader, job: LoadJob) -> None:
        loaded = Loaded(job.ticket, 0, len(job.refs), 0, 0, 0.0, job.addresses)
        try:
            loaded = loader.run(job)
        finally:
            self._finish(loaded)

    def _keep(self) -> None:
        """The disk's thread: spill when there is something, else sweep and re-check now and then."""
        disk = self._disk
        next_sweep = time.monotonic() + _SWEEP_EVERY_S
        while not self._closing.is_set():
            self._housework.clear()
            busy = False
            try:
                busy = self._work(disk)
                if disk is not None and time.monotonic() >= next_sweep:
                    next_sweep = time.monotonic() + _SWEEP_EVERY_S
                    self._tidy(disk)
            except Exception:
                log.exception("housekeeping of the cache failed; it goes on")
                busy = False
            if not busy:
                self._housework.wait(_IDLE_S)

    def _work(self, disk: StorageTier | None) -> bool:
        if self._clear_wanted.is_set():
            self._clear_wanted.clear()
            if disk is not None:
                disk.clear()
        spilled = 0 if self._spiller is None else self._spiller.run()
        if not spilled and self._scrubber is not None:
            self._scrubber.run()
        return spilled == BATCH

    def _tidy(self, disk: StorageTier) -> None:
        try:
            disk.sweep(self._clock())
            disk.save_values({"counters": as_numbers(self._metrics.snapshot())})
        except TierError as error:
            log.warning("housekeeping of the cache directory failed: %s", error)
