"""Runs the server that `forebay serve` describes: socket, engine, HTTP, signals and the start-up report.

It starts the engine's process before it imports what only the HTTP side needs (`http_server`), for that takes as long
as the engine's own imports.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.cli import console
from forebay.cli.cache_options import CacheOptions
from forebay.cli.options import EngineOptions, SchedulingOptions
from forebay.cli.serve import HttpOptions
from forebay.cli.startup import local_url, start_report
from forebay.cli.worker import worker_options
from forebay.cluster import WorkerOptions, local_worker
from forebay.core.errors import ConfigError, EngineUnavailableError
from forebay.core.heap import trim_heap
from forebay.core.library_pages import release_library_pages
from forebay.models import ModelSource, resolve
from forebay.router import Router

if TYPE_CHECKING:
    import uvicorn

    from forebay.api.auth import ApiKey
    from forebay.cli.http_server import PreparedServer

_HEALTH_CHECK_S = 0.25
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_server(
    model: str, http: HttpOptions, engine: EngineOptions, scheduling: SchedulingOptions, cache: CacheOptions
) -> int:
    """Serve until told to stop. Returns 0 after SIGTERM, 130 after Ctrl-C, 1 when the engine died.

    Raises ForebayError when the server can't start; a port in use is found before the model is touched.
    """
    with listen(http.host, http.port) as sock:
        source = resolve(model)
        name = http.served_model_name[0] if http.served_model_name else source.name
        options = worker_options(source, name, engine, scheduling, cache, keys=_keys(http))
        stop = Stop()
        try:
            return asyncio.run(_serve(sock, source, options, http, stop, public=cache.public_prefix))
        except asyncio.CancelledError:
            return stop.exit_code


def _keys(http: HttpOptions) -> list[ApiKey]:
    if http.api_key_file is None:
        return []
    from forebay.api.auth import load_key_file  # all of the API comes with it, a second

    return load_key_file(http.api_key_file)


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises ConfigError when the address can't be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"The address {host} can't be used: {error.strerror or error}. Change --host.") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(2048)
    except OSError as error:
        sock.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(f"Can't listen on {host} port {port}: {reason}. Choose another with --port.") from error
    return sock


class Stop:
    """What signals do. The first ends the server gently, the second without waiting for requests, the third at once.

    While the engine is still being started, the first cancels that.
    """

    def __init__(self) -> None:
        self.exit_code = 0
        self.asked = False
        self._server: uvicorn.Server | None = None

    @contextlib.contextmanager
    def installed(self, task: asyncio.Task[object]) -> Iterator[None]:
        """Take SIGINT and SIGTERM; until a server is `attached` they cancel `task`."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._signalled, number, task)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def attach(self, server: uvicorn.Server) -> None:
        """From now on the first signal ends this server."""
        self._server = server

    def _signalled(self, number: signal.Signals, task: asyncio.Task[object]) -> None:
        if self.asked:
            self._hurry(number)
            return
        self.asked = True
        self.exit_code = 130 if number == signal.SIGINT else 0
        if self._server is None:
            task.cancel()
        else:
            self._server.should_exit = True
        console.notice("forebay: stopping (Ctrl-C again does not wait for running requests)")

    def _hurry(self, number: signal.Signals) -> None:
        if self._server is None or self._server.force_exit:
            os._exit(128 + number)
        self._server.force_exit = True


async def _serve(
    sock: socket.socket,
    source: ModelSource,
    options: WorkerOptions,
    http: HttpOptions,
    stop: Stop,
    *,
    public: Sequence[Path],
) -> int:
    with stop.installed(_this_task()):
        async with asyncio.TaskGroup() as tasks, contextlib.AsyncExitStack() as stack:
            # This process imports the API and reads the tokenizer while the engine's process loads the weights.
            started = asyncio.Event()
            parts = tasks.create_task(_prepare_once(started, source, http, public))
            with console.stages("starting the engine") as report:
                router = await stack.enter_async_context(local_worker(options, report, on_start=started.set))
                prepared = await parts
                for ids in prepared.public:
                    await router.mark_public(ids)
            server = prepared.build(router)
            stop.attach(server)
            url = local_url(http.host, sock.getsockname()[1])
            console.notice(
                start_report(router.model, prepared.model, options, url, keys=prepared.keys, tiers=router.stats.tiers)
            )
            trim_heap()
            release_library_pages()
            watching = tasks.create_task(_end_with_engine(router, server, stop))
            await server.serve([sock])
            watching.cancel()
            # What a hurried end left running is told so, before the link to the engine is gone.
            router.fail(EngineUnavailableError("The server has stopped."))
            return stop.exit_code if stop.asked else 1
    raise RuntimeError("a task group swallowed an error")


def _this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("the server must run in a task")
    return task


async def _prepare_once(
    started: asyncio.Event, source: ModelSource, http: HttpOptions, public: Sequence[Path]
) -> PreparedServer:
    """Not before the engine's process has started: imports in a thread would hold that up. Raises ForebayError."""
    await started.wait()
    return await asyncio.to_thread(_prepare, source, http, public)


def _prepare(source: ModelSource, http: HttpOptions, public: Sequence[Path]) -> PreparedServer:
    """Runs in a thread, imports included, while the engine's process starts. Raises ForebayError."""
    from forebay.cli.http_server import prepare

    return prepare(source, http, public)


async def _end_with_engine(router: Router, server: uvicorn.Server, stop: Stop) -> None:
    """Ends the server when the engine is gone; until its last answer is out, /health says 503."""
    while router.healthy:  # noqa: ASYNC110 (the router has no event for it)
        await asyncio.sleep(_HEALTH_CHECK_S)
    if stop.asked:
        return
    console.fail("The engine's process died (its last words, if any, are above), so the server ends. Start it again.")
    server.should_exit = True
