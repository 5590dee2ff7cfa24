"""Responses that are made in the background: who owns their tasks, how many there may be, how one is cancelled.

The tasks live as long as the app's lifespan, which cancels those that are left; a cancelled response says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from forebay.api.errors import FaultError, Kind
from forebay.core.errors import OverloadedError


class Jobs:
    """The background tasks of one app."""

    def __init__(self, most: int) -> None:
        """At most so many run at one time; one more is refused."""
        self._most = most
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While this is entered, jobs can be started; leaving it cancels them and waits for their ends."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = None
                for task in self._tasks:
                    task.cancel()

    def check(self) -> None:
        """Raise OverloadedError when as many run as may, and FaultError (UNAVAILABLE) when nobody could own a task."""
        if self._group is None:
            raise FaultError(Kind.UNAVAILABLE, "The server makes no responses in the background at the moment.")
        if len(self._tasks) >= self._most:
            raise OverloadedError(f"{self._most} responses are being made in the background, which is the most.")

    def start(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a job, which must not raise but for its cancellation. `check` comes first."""
        if self._group is None:
            job.close()
            raise FaultError(Kind.UNAVAILABLE, "The server is stopping. Send the request again shortly.")
        task = self._group.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
