"""One worker process on this machine: started, watched and always ended by its context manager."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import zmq

from forebay.core.cpus import read_cpus
from forebay.core.errors import EngineUnavailableError
from forebay.core.messages import FLUSHING, Progress
from forebay.engine import WorkerOptions
from forebay.engine.threads import plan_threads, thread_settings
from forebay.router import Router, WorkerLink

log = logging.getLogger(__name__)

_GRACE_S = 2.0
"""How long a worker may take to end by itself, and again after SIGTERM."""
_FLUSH_S = 20.0
"""The same for one that says, every `_GRACE_S` or sooner, that it is writing pages to disk."""


@asynccontextmanager
async def local_worker(
    options: WorkerOptions,
    on_progress: Callable[[str, float], None] | None = None,
    *,
    on_start: Callable[[], None] | None = None,
) -> AsyncIterator[Router]:
    """Start a worker, wait until its model is loaded, and give a router to it. Leaving ends the process within seconds.

    The socket lies in a folder that only this user can enter. `on_start` is called once the process runs, before its
    model is loaded.

    Raises:
        ConfigError, ModelNotFoundError, UnsupportedModelError, EngineUnavailableError: it could not start.
    """
    failure: Exception | None = None
    with tempfile.TemporaryDirectory(prefix="forebay-") as folder:
        address = f"ipc://{Path(folder) / 'worker'}"
        with WorkerLink(address) as link:
            router = Router(link, options.max_waiting, on_progress)
            process = await _start(address, options)
            if on_start is not None:
                on_start()
            async with asyncio.TaskGroup() as group:
                receiving = group.create_task(router.run(), name="worker messages")
                watching = group.create_task(_watch(process, router), name="worker process")
                try:
                    await router.wait_ready()
                    yield router
                except Exception as error:  # kept, so that the task group does not wrap it
                    failure = error
                finally:
                    receiving.cancel()
                    await _stop(process, link)
                    watching.cancel()
    if failure is not None:
        raise failure


async def _start(address: str, options: WorkerOptions) -> Process:
    """The worker reads its standard input only to see it close, which tells it that this process is gone. It gets a
    session of its own, so that Ctrl-C reaches this process alone, which then ends it in order.
    """
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "forebay.engine.worker",
        address,
        msgspec.json.encode(options).decode(),
        stdin=asyncio.subprocess.PIPE,
        stdout=sys.stderr.fileno() if _has_fileno() else None,
        start_new_session=True,
        env=os.environ | thread_settings(plan_threads(read_cpus(), options.threads), os.environ),
    )


def _has_fileno() -> bool:
    try:
        sys.stderr.fileno()
    except (OSError, ValueError):
        return False
    return True


async def _watch(process: Process, router: Router) -> None:
    code = await process.wait()
    await asyncio.sleep(0.05)  # its last words may still be in the socket, and say more than its exit code
    router.fail(EngineUnavailableError(f"The engine's process ended with exit code {code}."))


async def _stop(process: Process, link: WorkerLink) -> None:
    """Close its input, which asks it to end; then SIGTERM, then SIGKILL. Returns when it is gone."""
    if process.stdin is not None:
        process.stdin.close()
    if await _ends_by_itself(process, link):
        return
    for insist in (process.terminate, process.kill):
        with suppress(ProcessLookupError):
            insist()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await process.wait()
                return
    await process.wait()


async def _ends_by_itself(process: Process, link: WorkerLink) -> bool:
    """Wait for the process's end; longer while it says that it writes pages to disk."""
    try:
        async with asyncio.timeout(_GRACE_S) as grace, asyncio.TaskGroup() as group:
            listening = group.create_task(_prolong(grace, link), name="last words")
            await process.wait()
            listening.cancel()
    except TimeoutError:
        return False
    return True


async def _prolong(grace: asyncio.Timeout, link: WorkerLink) -> None:
    """Move the deadline with each word of progress, up to `_FLUSH_S` from now."""
    clock = asyncio.get_running_loop().time
    limit, told = clock() + _FLUSH_S, False
    while True:
        try:
            message = await link.receive()
        except (zmq.ZMQError, msgspec.MsgspecError):
            return
        if isinstance(message, Progress) and message.stage == FLUSHING:
            grace.reschedule(min(limit, clock() + _GRACE_S))
            if not told:
                log.warning(
                    "the engine is %s (%.0f %% done); it gets %.0f s", FLUSHING, 100 * message.fraction, _FLUSH_S
                )
            told = True
