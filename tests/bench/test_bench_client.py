"""One request over HTTP: what the events of a stream become, with a clock and a transport that the test moves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from forebay.bench.client import Target, error_message, first_model, one_token_words, request_body, send
from forebay.bench.metrics import RequestResult
from forebay.bench.workload import Sample
from forebay.core.errors import ConfigError

SAMPLE = Sample("hello", 5, 8)
COMPLETIONS = Target("http://test", "/v1/completions", "m")
CHAT = Target("http://test", "/v1/chat/completions", "m", ignore_eos=True, temperature=0.5)

Handler = Callable[[httpx2.Request], httpx2.Response]


class Clock:
    """Time that passes only where the fake server lets it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Stream(httpx2.AsyncByteStream):
    """A response body whose pieces each arrive after a time."""

    def __init__(self, clock: Clock, pieces: list[tuple[float, str]]) -> None:
        self._clock = clock
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for seconds, text in self._pieces:
            self._clock.now += seconds
            yield text.encode()


def client_of(handler: Handler) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url="http://test", transport=httpx2.MockTransport(handler))


async def run(target: Target, pieces: list[tuple[float, str]]) -> RequestResult:
    clock = Clock()
    headers = {"content-type": "text/event-stream"}
    async with client_of(lambda _: httpx2.Response(200, headers=headers, stream=Stream(clock, pieces))) as client:
        return await send(client, target, SAMPLE, clock)


def event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"


def text(piece: str, finish: str | None = None) -> str:
    return event({"choices": [{"index": 0, "text": piece, "finish_reason": finish}]})


def delta(content: str | None, **more: Any) -> str:
    return event({"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": None} | more]})


async def test_completion_events_become_times_and_counts() -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 6, "completion_tokens": 4}})
    result = await run(
        COMPLETIONS,
        [(0.5, text("a")), (0.25, text("")), (0.5, text("é")), (0.25, text("", "length") + usage + "data: [DONE]\n\n")],
    )
    assert result.error == ""
    assert (result.start, result.ttft, result.latency) == (100.0, 0.5, 1.5)
    assert result.itls == [0.25, 0.5]
    assert (result.prompt_tokens, result.output_tokens, result.text) == (6, 4, "aé")


async def test_a_chats_role_event_is_not_its_first_token() -> None:
    role = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    result = await run(CHAT, [(0.25, role), (0.5, delta("a")), (0.25, delta(None, finish_reason="stop"))])
    assert result.ttft == 0.75
    assert result.itls == []
    assert result.output_tokens == 1


async def test_events_cut_anywhere_and_comments_are_read() -> None:
    whole = ": ping\n\n" + text("a") + text("b", "stop")
    result = await run(COMPLETIONS, [(0.125, character) for character in whole])
    assert (result.text, result.error) == ("ab", "")


async def test_an_answer_without_text_has_a_first_event() -> None:
    result = await run(CHAT, [(0.5, delta("", finish_reason="stop")), (0.5, "data: [DONE]\n\n")])
    assert (result.ttft, result.error) == (0.5, "")


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([(0.0, text("a")), (0.0, event({"error": {"message": "engine died"}}))], "engine died"),
        ([(0.0, "data: [DONE]\n\n")], "before its first token"),
        ([(0.0, "data: {oops\n\n")], "Expecting"),
        ([(0.0, "data: 3\n\n")], "unexpected event"),
    ],
)
async def test_a_stream_that_goes_wrong_is_a_failure_with_its_reason(
    pieces: list[tuple[float, str]], message: str
) -> None:
    assert message in (await run(COMPLETIONS, pieces)).error


async def test_an_error_status_and_a_dead_server_are_failures() -> None:
    def dead(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("connection refused", request=request)

    body = {"error": {"message": "too long", "code": 400}}
    async with client_of(lambda _: httpx2.Response(400, json=body)) as client:
        assert (await send(client, COMPLETIONS, SAMPLE, Clock())).error == "400: too long"
    async with client_of(dead) as client:
        assert (await send(client, COMPLETIONS, SAMPLE, Clock())).error == "connection refused"
        with pytest.raises(ConfigError, match="No server answers"):
            await first_model(client)


def test_request_bodies_follow_the_endpoint() -> None:
    assert request_body(COMPLETIONS, SAMPLE)["prompt"] == "hello"
    assert "ignore_eos" not in request_body(COMPLETIONS, SAMPLE)
    chat = request_body(CHAT, SAMPLE)
    assert chat["messages"] == [{"role": "user", "content": "hello"}]
    assert (chat["ignore_eos"], chat["temperature"], chat["max_tokens"], chat["stream"]) == (True, 0.5, 8, True)


@pytest.mark.parametrize("field", ["prompt", "content"])
async def test_words_of_one_token_are_found_with_either_form_of_tokenize(field: str) -> None:
    def tokenize(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        if field not in body:
            return httpx2.Response(400, json={})
        # One token a word, with a mark at the start; long words are two.
        return httpx2.Response(
            200, json={"tokens": [1, *(n for word in body[field].split() for n in [2] * (1 + (len(word) > 5)))]}
        )

    async with client_of(tokenize) as client:
        assert await one_token_words(client, "m", ["the", "because", "year"]) == ["the", "year"]
    async with client_of(lambda _: httpx2.Response(404, text="no")) as client:
        assert await one_token_words(client, "m", ["the"]) == []


async def test_the_first_model_is_asked_for() -> None:
    async with client_of(lambda _: httpx2.Response(200, json={"data": [{"id": "a"}, {"id": "b"}]})) as client:
        assert await first_model(client) == "a"
    async with client_of(lambda _: httpx2.Response(200, json={"data": []})) as client:
        with pytest.raises(ConfigError, match="--model"):
            await first_model(client)
    async with client_of(lambda _: httpx2.Response(401, json={"error": {"message": "no key"}})) as client:
        with pytest.raises(ConfigError, match="401: no key"):
            await first_model(client)


def test_error_bodies_of_all_shapes_give_their_sentence() -> None:
    assert error_message('{"error": {"message": "a"}}') == "a"
    assert error_message('{"error": "b"}') == "b"
    assert error_message('{"message": "c"}') == "c"
    assert error_message("<html>") == "<html>"
