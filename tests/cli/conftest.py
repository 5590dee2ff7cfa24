"""A small OpenAI-like server in a thread, and a way to run the command line within the test's process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from forebay.cli.main import main

WORDS = ["Rivers", " run", " down", "."]


@dataclass
class FakeServer:
    """Streams WORDS as an answer to everything, and remembers what it was asked."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    fail_every: int = 0
    """Answer each n-th generation with an error; 0 never."""
    tokenizes: bool = True

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self.models),
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/v1/completions", self.generate, methods=["POST"]),
                Route("/v1/chat/completions", self.generate, methods=["POST"]),
            ]
        )

    async def models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": "fake"}]})

    async def tokenize(self, request: Request) -> Response:
        if not self.tokenizes:
            return Response(status_code=404)
        return JSONResponse({"tokens": [0, *(await request.json())["prompt"].split()]})

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        self.keys.append(request.headers.get("authorization"))
        if self.fail_every and len(self.asked) % self.fail_every == 0:
            return JSONResponse({"error": {"message": "no room left", "type": "overloaded"}}, status_code=503)
        chat = request.url.path.endswith("chat/completions")
        return StreamingResponse(self.events(chat), media_type="text/event-stream")

    async def events(self, chat: bool) -> AsyncIterator[str]:
        for word in WORDS:
            part = {"delta": {"content": word}} if chat else {"text": word}
            yield f"data: {json.dumps({'choices': [{'index': 0, 'finish_reason': None, **part}]})}\n\n"
        usage = {"prompt_tokens": 7, "completion_tokens": len(WORDS)}
        yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    uvicorn_server = uvicorn.Server(uvicorn.Config(fake.app(), port=0, log_config=None, lifespan="off", ws="none"))
    thread = threading.Thread(target=uvicorn_server.run)
    thread.start()
    while not uvicorn_server.started:
        time.sleep(0.005)
    fake.url = f"http://127.0.0.1:{uvicorn_server.servers[0].sockets[0].getsockname()[1]}"
    yield fake
    uvicorn_server.should_exit = True
    thread.join()


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """Standard error on one line: long messages are wrapped to the terminal's width."""
        return " ".join(self.err.split())


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line and give its exit code and output."""
    monkeypatch.setenv("COLUMNS", "120")

    def command(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return command
