"""Ends work for a client that has gone: what makes a hung-up request give its pages back within a step."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from forebay.api.errors import FaultError, Kind

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client closed its connection before the answer was complete, so nobody is there to be told."""


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _outcome(work: Coroutine[Any, Any, T]) -> T | Exception:
    """The result or the error, as a value: a task group would wrap the error."""
    try:
        return await work
    except Exception as error:  # handed to the caller of until_hangup, which raises it
        return error


async def until_hangup(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which runs only as long as the client stays.

    The request's body must have been read. Raises ClientGoneError when the client hung up first; by then `work` is
    cancelled and has cleaned up. Raises what `work` raises, and FaultError (UNAVAILABLE) when the request's own task is
    cancelled, which only a server that stops does: so that the client still gets an answer that says so.
    """
    try:
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(_outcome(work))
            watcher = group.create_task(_gone(receive))
            await asyncio.wait((worker, watcher), return_when=asyncio.FIRST_COMPLETED)
            watcher.cancel()
            if not worker.done():
                worker.cancel()
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        raise FaultError(Kind.UNAVAILABLE, "The server is stopping. Send the request again shortly.") from None
    if worker.cancelled():
        raise ClientGoneError("the client closed its connection")
    result = worker.result()
    if isinstance(result, Exception):
        raise result
    return result
