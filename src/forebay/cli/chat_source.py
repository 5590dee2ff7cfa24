"""Where `forebay chat` gets its answers: an engine that it starts itself, or an OpenAI-compatible server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import httpx2

from forebay.bench.client import choice_text, describe, error_message, first_model, open_client
from forebay.cli.chat import ChatOptions, ServerOptions
from forebay.cli.options import EngineOptions
from forebay.core.errors import ForebayError

Turns = list[dict[str, str]]


class ChatSource(Protocol):
    """Answers conversations."""

    @property
    def name(self) -> str:
        """What is talked to, for people."""

    def answer(self, turns: Turns) -> AsyncIterator[str]:
        """Pieces of the answer to OpenAI-style messages. Raises ForebayError."""


@asynccontextmanager
async def open_source(
    model: str | None, chat: ChatOptions, server: ServerOptions, engine: EngineOptions
) -> AsyncIterator[ChatSource]:
    """The source that the options ask for, ready to answer. Raises ForebayError when it can't be had."""
    if server.base_url is not None:
        async with open_client(server.base_url, server.api_key) as client:
            yield ServerSource(client, model or await first_model(client), chat)
        return
    from forebay.cli.chat_local import local_source

    async with local_source(model or "", chat, engine) as source:
        yield source


@dataclass(frozen=True, slots=True)
class ServerSource:
    """Answers through /v1/chat/completions."""

    client: httpx2.AsyncClient
    model: str
    options: ChatOptions

    @property
    def name(self) -> str:
        """The model and where it is."""
        return f"{self.model} at {self.client.base_url}"

    async def answer(self, turns: Turns) -> AsyncIterator[str]:
        """Pieces of the answer as the server sends them."""
        try:
            async with self.client.sse("/v1/chat/completions", method="POST", json=self._body(turns)) as events:
                response = events.response
                if response.is_error:
                    await response.aread()
                    raise ForebayError(f"The server answered {response.status_code}: {error_message(response.text)}")
                async for event in events:
                    if event.data.strip() != "[DONE]":
                        yield _text_of(event.data)
        except (httpx2.HTTPError, ValueError) as error:
            raise ForebayError(f"The server at {self.client.base_url} failed: {describe(error)}") from error

    def _body(self, turns: Turns) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": turns, "stream": True}
        chosen = {
            "temperature": self.options.temperature,
            "max_tokens": self.options.max_tokens,
            "seed": self.options.seed,
        }
        return body | {name: value for name, value in chosen.items() if value is not None}


def _text_of(data: str) -> str:
    chunk = json.loads(data)
    if chunk.get("error"):
        raise ForebayError(f"The server gave up: {error_message(data)}")
    return "".join(choice_text(choice) for choice in chunk.get("choices") or [])
