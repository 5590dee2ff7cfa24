"""A thread that does jobs from a bounded queue, one after the other, and ends with its owner."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

Job = TypeVar("Job")


class Worker(Generic[Job]):
    """`offer` never waits: at the bound it refuses. An error in a job is logged and ends that job only."""

    def __init__(self, name: str, handle: Callable[[Job], None], bound: int) -> None:
        self._handle = handle
        self._queue: queue.Queue[Job | None] = queue.Queue(bound)
        self._thread = threading.Thread(target=self._run, name=f"forebay-{name}", daemon=True)
        self._thread.start()

    def offer(self, job: Job) -> bool:
        """Queue a job; False when as many as the bound are waiting."""
        try:
            self._queue.put_nowait(job)
        except queue.Full:
            return False
        return True

    @property
    def waiting(self) -> int:
        """Jobs not begun yet."""
        return self._queue.qsize()

    def close(self) -> None:
        """Do what is queued, then end. Nothing may be offered any more."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                self._handle(job)
            except Exception:
                log.exception("a job of %s failed", self._thread.name)
