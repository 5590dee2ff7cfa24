"""One request of a load test over HTTP, and what must be asked of the server before. Not the schedule, not the figures.

Speaks the OpenAI protocol to whatever server is there: completions or chat completions, streamed as server-sent events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from forebay.bench.metrics import RequestResult
from forebay.bench.workload import Sample
from forebay.core.errors import ConfigError

ENDPOINTS = ("/v1/completions", "/v1/chat/completions")
READ_TIMEOUT_S = 600.0
ERROR_CHARS = 500


@dataclass(frozen=True, slots=True)
class Target:
    """Where the requests go and what they all have in common."""

    base_url: str
    endpoint: str
    model: str
    ignore_eos: bool = False
    temperature: float | None = None

    @property
    def chat(self) -> bool:
        """Whether prompts are sent as one user message."""
        return self.endpoint.endswith("/chat/completions")


def open_client(base_url: str, api_key: str | None, *, keep_alive: bool = True) -> httpx2.AsyncClient:
    """A client without a limit on connections of its own: the run's concurrency is the only one. Without `keep_alive`
    every request gets a connection of its own: a server that ends idle ones may do so just as a request is sent.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return httpx2.AsyncClient(
        base_url=base_url.rstrip("/"),
        headers=headers,
        timeout=httpx2.Timeout(10.0, read=READ_TIMEOUT_S, pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None if keep_alive else 0),
        trust_env=False,
    )


async def first_model(client: httpx2.AsyncClient) -> str:
    """The id of the first model that the server lists. Raises ConfigError when there is no such answer."""
    try:
        response = await client.get("/v1/models")
    except httpx2.HTTPError as error:
        reason = f"No server answers at {client.base_url}: {describe(error)}. Start one or change --base-url."
        raise ConfigError(reason) from error
    if response.is_error:
        raise ConfigError(f"{client.base_url}v1/models answered {response.status_code}: {error_message(response.text)}")
    try:
        return str(response.json()["data"][0]["id"])
    except (ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"{client.base_url}v1/models lists no model; name one with --model.") from error


async def one_token_words(client: httpx2.AsyncClient, model: str, words: Sequence[str]) -> list[str]:
    """Those of `words` that the server's own tokenizer encodes, after a space, as one token each.

    Empty when the server has no /tokenize that we understand (vLLM's and ours take "prompt", llama.cpp's "content").
    """
    base = await _count_tokens(client, model, "")
    if base is None:
        return []
    if await _count_tokens(client, model, "".join(f" {word}" for word in words)) == base + len(words):
        return list(words)
    kept = []
    for word in words:
        count = await _count_tokens(client, model, f" {word}")
        if count is not None and count - base == 1:
            kept.append(word)
    return kept


async def _count_tokens(client: httpx2.AsyncClient, model: str, text: str) -> int | None:
    # A sentence with and without the text, so that what is added at the start of every prompt cancels out.
    text = "It was the time of the year" + text
    for body in ({"model": model, "prompt": text}, {"content": text}):
        try:
            response = await client.post("/tokenize", json=body)
            if response.is_success and (tokens := response.json().get("tokens")):
                return len(tokens)
        except (httpx2.HTTPError, ValueError, AttributeError):
            return None
    return None


def request_body(target: Target, sample: Sample) -> dict[str, Any]:
    """The JSON of one streamed request that asks for usage at its end."""
    body: dict[str, Any] = {
        "model": target.model,
        "max_tokens": sample.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if target.chat:
        body["messages"] = [{"role": "user", "content": sample.prompt}]
    else:
        body["prompt"] = sample.prompt
    if target.ignore_eos:
        body["ignore_eos"] = True
    if target.temperature is not None:
        body["temperature"] = target.temperature
    return body


async def send(client: httpx2.AsyncClient, target: Target, sample: Sample, clock: Callable[[], float]) -> RequestResult:
    """Send one request and read its answer to the end. A failed one does not raise: `error` says what happened."""
    recorder = _Recorder(RequestResult(start=clock(), prompt_tokens=sample.prompt_tokens), clock)
    try:
        async with client.sse(target.endpoint, method="POST", json=request_body(target, sample)) as events:
            response = events.response
            if response.is_error:
                await response.aread()
                recorder.fail(f"{response.status_code}: {error_message(response.text)}")
            else:
                async for event in events:
                    recorder.event(event.data)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        recorder.fail(describe(error))
    return recorder.finish()


class _Recorder:
    """Turns the events of one answer into a `RequestResult`."""

    def __init__(self, result: RequestResult, clock: Callable[[], float]) -> None:
        self._result = result
        self._clock = clock
        self._last_token: float | None = None
        self._first_choice: float | None = None
        self._counted: int | None = None
        self._pieces: list[str] = []
        self._token_events = 0

    def event(self, data: str) -> None:
        """Take one event; raises ValueError when it is neither JSON nor the end mark."""
        if data.strip() == "[DONE]":
            return
        chunk = json.loads(data)
        if not isinstance(chunk, dict):
            raise ValueError(f"unexpected event: {data[:80]}")
        if chunk.get("error"):
            self.fail(error_message(data))
            return
        if usage := chunk.get("usage"):
            self._counted = usage.get("completion_tokens")
            self._result.prompt_tokens = usage.get("prompt_tokens") or self._result.prompt_tokens
        for choice in chunk.get("choices") or []:
            self._choice(choice)

    def _choice(self, choice: dict[str, Any]) -> None:
        now = self._clock()
        if self._first_choice is None:
            self._first_choice = now
        text = choice_text(choice)
        self._pieces.append(text)
        # A completion's empty text is a token whose characters are not whole yet; a chat's empty delta carries the
        # role or the end.
        is_token = bool(text) or ("delta" not in choice and choice.get("finish_reason") is None)
        if not is_token:
            return
        self._token_events += 1
        if self._last_token is None:
            self._result.ttft = now - self._result.start
        else:
            self._result.itls.append(now - self._last_token)
        self._last_token = now

    def fail(self, message: str) -> None:
        """Note the first thing that went wrong."""
        self._result.error = self._result.error or message[:ERROR_CHARS] or "failed without a message"

    def finish(self) -> RequestResult:
        """Close the record at the present time."""
        result = self._result
        result.latency = self._clock() - result.start
        result.text = "".join(self._pieces)
        result.output_tokens = self._token_events if self._counted is None else self._counted
        if self._first_choice is None:
            self.fail("the answer ended before its first token")
        elif self._last_token is None:
            result.ttft = self._first_choice - result.start
        return result


def choice_text(choice: dict[str, Any]) -> str:
    """What one choice of an event adds: completion text, or chat content or reasoning; "" when neither."""
    if "delta" not in choice:
        return choice.get("text") or ""
    delta = choice.get("delta") or {}
    return delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or ""


def error_message(text: str) -> str:
    """The sentence within an error body of any of the known shapes, else the body itself, cut."""
    try:
        body = json.loads(text)
    except ValueError:
        return text.strip()[:ERROR_CHARS]
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message") if isinstance(error, dict) else error
    return str(message or text)[:ERROR_CHARS]


def describe(error: Exception) -> str:
    """An exception in one line; some network errors have no text of their own."""
    return str(error) or type(error).__name__
