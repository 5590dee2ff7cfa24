"""Streams against a running server: the order of events, keep-alive, clients that go, a server that stops."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.types import Message
from tests.api.fakes import FakeRouter
from tests.api.live import Live, events, wait_for
from tests.api.protocols import CHAT, CHATS, COMPLETION, MESSAGE, PATHS, error_of

from forebay.api import ApiConfig
from forebay.api.anthropic_events import MessageEvents
from forebay.api.generation import Generation
from forebay.api.hangup import ClientGoneError
from forebay.api.metrics import ApiMetrics
from forebay.api.observe import RequestObserver
from forebay.api.sse import EventStream
from forebay.core.request import GenerateRequest, SamplingParams
from forebay.recipe import Recipe


def test_chat_event_order(shared: Live) -> None:
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    answer = shared.http.post("/v1/chat/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    data = [d for _, d in events(answer.text)]
    assert data[-1] == "[DONE]"
    chunks = [json.loads(d) for d in data[:-1]]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert all(set(c["choices"][0]["delta"]) == {"content"} for c in chunks[1:-2])
    assert (chunks[-2]["choices"][0]["delta"], chunks[-2]["choices"][0]["finish_reason"]) == ({}, "stop")
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 1
    assert all(c["usage"] is None for c in chunks[:-1])
    assert len({c["id"] for c in chunks}) == 1


def test_continuous_usage_grows(shared: Live) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = shared.http.post("/v1/completions", json={**COMPLETION, "stream": True, "stream_options": options})
    counts = [json.loads(d)["usage"]["completion_tokens"] for _, d in events(answer.text)[:-1]]
    assert counts == sorted(counts)
    assert counts[-1] > 1


@pytest.mark.parametrize(("path", "body"), PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_hang_up_aborts(start: Callable[..., Live], path: str, body: dict[str, Any], stream: bool) -> None:
    live = start(ApiConfig(), hold_after=2)
    content = json.dumps({**body, "stream": stream}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", int(live.url.rpartition(":")[2])), timeout=10) as raw:
        raw.sendall(head.encode() + content)
        wait_for(lambda: live.router.release)
        assert live.router.aborted == []
    wait_for(lambda: live.router.aborted)
    assert live.router.aborted == [live.router.requests[0].id]
    counted = f'forebay_http_client_hangups_total{{route="{path}"}} 1.0'
    wait_for(lambda: counted in live.http.get("/metrics").text)
    assert "forebay_requests_cut_total" in live.http.get("/metrics").text


def test_silence_is_filled_before_an_answer_with_pings(start: Callable[..., Live]) -> None:
    live = start(ApiConfig(keepalive_s=0.02), hold_after=0)
    with live.http.stream("POST", "/v1/messages", json={**MESSAGE, "stream": True}) as answer:
        pings = 0
        for line in answer.iter_lines():
            pings += line == "event: ping"
            if pings == 4:
                break
        assert pings == 4


@pytest.mark.parametrize("hold", [0, 1])
def test_silence_is_filled_with_what_clients_that_strip_each_read_survive(
    start: Callable[..., Live], hold: int
) -> None:
    live = start(ApiConfig(keepalive_s=0.02), hold_after=hold)
    reader, silent, release = StrippingReader(), 0, None
    with live.http.stream("POST", CHATS, json={**CHAT, "stream": True}) as answer:
        for count, piece in enumerate(answer.iter_text()):
            assert count < 200, "silence is filled with something else than empty lines"
            reader.read(piece)
            silent += not piece.strip()
            if silent == 3 and release is None:
                release = live.router.release
                assert release is not None
                live.loop.call_soon_threadsafe(release.set)
    assert silent >= 3
    chunks = [json.loads(message.removeprefix("data: ")) for message in reader.messages if "[DONE]" not in message]
    assert [chunk["choices"][0]["finish_reason"] is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [
        True
    ]
    assert any(chunk["choices"][0]["delta"].get("content") for chunk in chunks)


@dataclass
class StrippingReader:
    """A client as `vllm bench serve` has it: what a read brings is stripped, so the ends of messages are guessed."""

    messages: list[str] = field(default_factory=list)
    buffer: str = ""

    def read(self, piece: str) -> None:
        self.buffer += piece.strip()
        while "\n\n" in self.buffer:
            message, self.buffer = self.buffer.split("\n\n", 1)
            self.messages.append(message)
        if self.buffer.startswith("data: ") and self.buffer.endswith(("}", "[DONE]")):
            self.messages.append(self.buffer)
            self.buffer = ""


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_shutdown_ends_streams_with_an_error_and_aborts(
    start: Callable[..., Live], path: str, body: dict[str, Any]
) -> None:
    live = start(ApiConfig(shutdown_grace_s=0), hold_after=2)
    with live.http.stream("POST", path, json={**body, "stream": True}) as answer:
        lines = answer.iter_lines()
        next(lines)
        live.stop()
        rest = list(lines)
    assert any("The server is stopping" in line for line in rest)
    assert len(live.router.aborted) == 1


def test_shutdown_answers_what_is_not_streamed(start: Callable[..., Live]) -> None:
    live = start(ApiConfig(shutdown_grace_s=0), hold_after=2)
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(live.http.post, "/v1/messages", json=MESSAGE)
        wait_for(lambda: live.router.release)
        live.stop()
        answer = pending.result(20)
    assert answer.status_code == 503
    assert "stopping" in error_of(answer)["message"]
    assert len(live.router.aborted) == 1


async def test_client_that_does_not_read_is_treated_as_gone(recipe: Recipe) -> None:
    router = FakeRouter(recipe, hold_after=2)
    sampling = SamplingParams(max_tokens=9)
    request = GenerateRequest(id="r", prompt_ids=[1], sampling=sampling)
    generation = Generation(request, recipe, [], RequestObserver(ApiMetrics("m")))
    writer = MessageEvents("msg_1", "m", generation, 9)
    never = asyncio.Event()

    async def receive() -> Message:
        await never.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await never.wait()

    with pytest.raises(ClientGoneError):
        await EventStream([generation], router, writer, ApiConfig(stall_s=0.02))({}, receive, send)
    assert router.aborted == ["r"]
