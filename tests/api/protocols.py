"""A short request of each protocol, and the shape that all of its errors have."""

from __future__ import annotations

from typing import Any

import httpx2

CHATS = "/v1/chat/completions"
CHAT: dict[str, Any] = {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}]}
MESSAGE: dict[str, Any] = {**CHAT, "max_tokens": 50}
COMPLETION: dict[str, Any] = {"model": "smollm2", "prompt": "Hi"}
RESPONSE: dict[str, Any] = {"model": "smollm2", "input": "Hi"}
PATHS = [
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", COMPLETION),
    ("/v1/messages", MESSAGE),
    ("/v1/responses", RESPONSE),
]


def error_of(answer: httpx2.Response) -> dict[str, Any]:
    """The error object, checked for the shape of the path's protocol."""
    body = answer.json()
    error: dict[str, Any] = body["error"]
    if answer.request.url.path.startswith("/v1/messages"):
        assert body["type"] == "error"
        assert set(error) == {"type", "message"}
        assert body["request_id"] == answer.headers["request-id"]
    else:
        assert set(error) == {"message", "type", "param", "code"}
        assert answer.headers["x-request-id"]
    return error
