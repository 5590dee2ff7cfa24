"""One response that is made in the background: its task, what the task leaves behind, and what its readers get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from forebay.api.errors import fault_of, log_failure
from forebay.api.generation import Delta, Generation, run_all
from forebay.api.ports import RouterPort
from forebay.api.responses_jobs import Jobs
from forebay.api.responses_store import Record
from forebay.api.responses_stream import ResponseEvents

_MEASURED_EVERY = 256
"""Deltas after which a growing response's bytes are counted anew."""


@dataclass(frozen=True, slots=True)
class Background:
    """A response that is stored already and can be made."""

    record: Record
    generation: Generation
    events: ResponseEvents
    measure: Callable[[], None]
    """Counts the record's bytes anew."""

    def start(self, jobs: Jobs, router: RouterPort, timeout_s: float) -> None:
        """Make it. Raises FaultError when the server is stopping."""
        job = jobs.start(self._make(router, timeout_s))
        self.record.job = job
        job.add_done_callback(self._settle)

    def _log(self, events: Iterable[bytes]) -> None:
        if self.record.log is not None:
            self.record.log.add(events)

    async def _make(self, router: RouterPort, timeout_s: float) -> None:
        """The task. Raises nothing but its cancellation."""
        count = 0

        async def sink(generation: Generation, delta: Delta) -> None:
            nonlocal count
            self._log(self.events.of(generation, delta))
            count += 1
            if count % _MEASURED_EVERY == 0:
                self.measure()

        self._log(self.events.first())
        try:
            await run_all([self.generation], router, sink, timeout_s)
        except Exception as error:  # told to whoever reads the response
            fault = fault_of(error)
            log_failure(error, fault)
            self._log(self.events.failed(fault))

    def _settle(self, _: asyncio.Task[None]) -> None:
        """The task is over, or was cancelled, perhaps before it ran."""
        self._log(self.events.cancelled())
        if self.record.log is not None:
            self.record.log.finish()
        self.record.job = None
        self.measure()
