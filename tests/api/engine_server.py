"""A server with a real engine process behind it, for the tests of the whole way."""

from __future__ import annotations

import asyncio
import socket
import threading

import uvicorn
from tests.api.live import wait_for

from forebay.api import ApiConfig, build_app, make_server
from forebay.cluster import WorkerOptions, local_worker
from forebay.core.messages import IntegrityReport
from forebay.recipe import Recipe
from forebay.router import Router


class EngineServer:
    """A server with its own engine process, in a thread with a loop of its own."""

    router: Router
    server: uvicorn.Server

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="engine-server")

    async def _serve(self) -> None:
        options = WorkerOptions(model="smollm2", kv_memory=96 * 1024 * 1024, max_model_len=1024, threads=2)
        try:
            async with local_worker(options) as router:
                self.router, self.loop = router, asyncio.get_running_loop()
                self.server = make_server(build_app(router, self._recipe, ApiConfig()), ApiConfig())
                self._ready.set()
                await self.server.serve(sockets=[self._listener])
        finally:
            self._ready.set()

    def __enter__(self) -> EngineServer:
        self._thread.start()
        self._ready.wait()
        wait_for(lambda: self.server.started)
        return self

    def __exit__(self, *failure: object) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        self._listener.close()

    def integrity(self) -> IntegrityReport:
        """What the worker finds when it recounts its pages."""
        return asyncio.run_coroutine_threadsafe(self.router.check_integrity(), self.loop).result(30)
