"""Anthropic's protocol with Anthropic's own client, against a running server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import anthropic
import pytest
from anthropic.types import MessageParam
from tests.api.live import Live, events

from forebay.core.errors import EngineUnavailableError, OverloadedError
from forebay.recipe import Conversation, Message, Recipe

HELLO: list[MessageParam] = [{"role": "user", "content": "Say hello."}]
ANSWER = "The forebay holds the water back."


@pytest.fixture(scope="module")
def client(shared: Live) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=shared.url, api_key="none", max_retries=0) as made:
        yield made


def test_message(client: anthropic.Anthropic) -> None:
    message = client.messages.create(model="smollm2", max_tokens=100, messages=HELLO, system="Be brief.")
    assert message.content[0].type == "text"
    assert message.content[0].text == ANSWER
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message._request_id is not None


def test_stream_accumulates_to_the_same_message(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model="smollm2", max_tokens=100, messages=HELLO) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == ANSWER
    whole = client.messages.create(model="smollm2", max_tokens=100, messages=HELLO)
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert final.usage.input_tokens == whole.usage.input_tokens


async def test_async_stream(shared: Live) -> None:
    async with (
        anthropic.AsyncAnthropic(base_url=shared.url, auth_token="none") as client,
        client.messages.stream(model="smollm2", max_tokens=100, messages=HELLO) as stream,
    ):
        text = "".join([piece async for piece in stream.text_stream])
    assert text == ANSWER


def test_event_order(shared: Live) -> None:
    body = {"model": "smollm2", "max_tokens": 100, "messages": HELLO, "stream": True}
    found = events(shared.http.post("/v1/messages", json=body).text)
    names = [name for name, _ in found]
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[3:-3]) == {"content_block_delta"}
    assert all(json.loads(data)["type"] == name for name, data in found)


def test_stop_sequence_is_named(client: anthropic.Anthropic) -> None:
    message = client.messages.create(model="smollm2", max_tokens=100, messages=HELLO, stop_sequences=["x!", " water"])
    assert message.content[0].type == "text"
    assert message.content[0].text == "The forebay holds the"
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " water")


def test_max_tokens_and_the_end_of_the_context(start: Callable[..., Live]) -> None:
    live = start(answer="word " * 600)
    with anthropic.Anthropic(base_url=live.url, api_key="none") as client:
        short = client.messages.create(model="smollm2", max_tokens=3, messages=HELLO)
        full = client.messages.create(model="smollm2", max_tokens=16_000, messages=HELLO)
    assert (short.stop_reason, short.usage.output_tokens) == ("max_tokens", 3)
    assert full.stop_reason == "model_context_window_exceeded"
    assert full.usage.input_tokens + full.usage.output_tokens == live.router.model.max_model_len


def test_cache_reads_are_not_input_tokens(start: Callable[..., Live], recipe: Recipe) -> None:
    live = start(cached_tokens=16)
    with anthropic.Anthropic(base_url=live.url, api_key="none") as client:
        usage = client.messages.create(model="smollm2", max_tokens=100, messages=HELLO).usage
        counted = client.messages.count_tokens(model="smollm2", messages=HELLO)
        with client.messages.stream(model="smollm2", max_tokens=100, messages=HELLO) as stream:
            streamed = stream.get_final_message().usage
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (16, 0)
    assert usage.input_tokens + 16 == counted.input_tokens
    assert (streamed.input_tokens, streamed.cache_read_input_tokens) == (usage.input_tokens, 16)
    prompt = recipe.encode_chat(Conversation([Message("user", "Say hello.")]))
    assert counted.input_tokens == len(prompt.ids)


def test_prefill_is_continued(start: Callable[..., Live], recipe: Recipe) -> None:
    live = start()
    messages: list[MessageParam] = [*HELLO, {"role": "assistant", "content": "Well, hel"}]
    with anthropic.Anthropic(base_url=live.url, api_key="none") as client:
        client.messages.create(model="smollm2", max_tokens=100, messages=messages)
    expected = recipe.encode_chat(
        Conversation([Message("user", "Say hello."), Message("assistant", "Well, hel")]), continue_final=True
    )
    assert live.router.requests[0].prompt_ids == expected.ids


def test_blocks_system_turns_and_hints_are_taken(start: Callable[..., Live], recipe: Recipe) -> None:
    live = start()
    body = {
        "model": "smollm2",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "b"}]},
            {"role": "user", "content": "c"},
            {"role": "system", "content": "d"},
            {"role": "user", "content": "e"},
        ],
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
    }
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "some-2026-01-01"}
    assert live.http.post("/v1/messages?beta=true", json=body, headers=headers).status_code == 200
    turns = [Message("system", "A"), Message("user", ["b", "c"]), Message("system", "d"), Message("user", "e")]
    assert live.router.requests[0].prompt_ids == recipe.encode_chat(Conversation(turns)).ids


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("thinking", {"type": "enabled", "budget_tokens": 2048}),
        ("tool_choice", {"type": "any"}),
        ("temperature", 1.5),
        ("surprise", 1),
        ("messages", [{"role": "user", "content": [{"type": "image", "source": {}}]}]),
        ("stop_sequences", [""]),
    ],
)
def test_what_cannot_be_honoured_is_refused(shared: Live, field: str, value: object) -> None:
    body = {"model": "smollm2", "max_tokens": 5, "messages": HELLO, field: value}
    answer = shared.http.post("/v1/messages", json=body)
    assert answer.status_code == 400
    error = answer.json()
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert error["request_id"] == answer.headers["request-id"]


@pytest.mark.parametrize(
    ("refuse", "status", "kind"),
    [
        (OverloadedError("full", retry_after=7.2), 529, anthropic.APIStatusError),
        (EngineUnavailableError("none"), 503, anthropic.InternalServerError),
    ],
)
def test_statuses(
    start: Callable[..., Live], refuse: Exception, status: int, kind: type[anthropic.APIStatusError]
) -> None:
    live = start(refuse=refuse)
    with anthropic.Anthropic(base_url=live.url, api_key="none", max_retries=0) as client, pytest.raises(kind) as caught:
        client.messages.create(model="smollm2", max_tokens=5, messages=HELLO)
    assert caught.value.status_code == status
    assert caught.value.response.headers["retry-after"] == ("8" if status == 529 else "1")


def test_mid_stream_failure_is_an_error_event(start: Callable[..., Live]) -> None:
    live = start(break_after=2, breaks=EngineUnavailableError("gone"))
    with (
        anthropic.Anthropic(base_url=live.url, api_key="none") as client,
        pytest.raises(anthropic.APIStatusError, match="No engine"),
        client.messages.stream(model="smollm2", max_tokens=100, messages=HELLO) as stream,
    ):
        stream.until_done()


def test_models_in_anthropics_shape(client: anthropic.Anthropic) -> None:
    assert [model.id for model in client.models.list()] == ["smollm2"]
    assert client.models.retrieve("smollm2").type == "model"
