"""A really running server for the tests: uvicorn on a free loopback port, in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx2
from fastapi import FastAPI
from tests.api.fakes import FakeRouter

from forebay.api import ApiConfig, build_app, make_server
from forebay.recipe import Recipe


@dataclass
class Live:
    """Starts when entered, and is gone when left."""

    router: FakeRouter
    recipe: Recipe
    config: ApiConfig

    def __enter__(self) -> Self:
        self.app: FastAPI = build_app(self.router, self.recipe, self.config)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._server = make_server(self.app, self.config)
        self._thread = threading.Thread(target=self._run, name="live-server")
        self._thread.start()
        wait_for(lambda: self._server.started)
        self.http = httpx2.Client(base_url=self.url, timeout=60)
        return self

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self._server.serve(sockets=[self._listener])

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()
        self.stop()
        self._listener.close()

    def stop(self) -> None:
        """End the server as Ctrl-C would, and wait for it."""
        self._server.should_exit = True
        self._thread.join(20)
        if self._thread.is_alive():
            raise AssertionError("the server did not end")


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until something is true in another thread; fail when it never is."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not happen in time")
        time.sleep(0.005)


def events(body: str) -> list[tuple[str | None, str]]:
    """The (name, data) of each server-sent event; comments have the name ':'."""
    found: list[tuple[str | None, str]] = []
    for block in body.split("\n\n"):
        if block.startswith(":"):
            found.append((":", block[1:].strip()))
        elif block:
            lines = dict(line.split(": ", 1) for line in block.split("\n"))
            found.append((lines.get("event"), lines["data"]))
    return found
