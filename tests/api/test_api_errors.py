"""Errors against a running server: each status in each protocol's shape, the field to blame, the limits."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.api.live import Live
from tests.api.protocols import CHAT, CHATS, COMPLETION, MESSAGE, PATHS, error_of

from forebay.api import ApiConfig
from forebay.core.errors import EngineUnavailableError, OverloadedError


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_overload_has_status_and_retry_after(start: Callable[..., Live], path: str, body: dict[str, Any]) -> None:
    live = start(refuse=OverloadedError("Too many wait.", retry_after=3.5))
    for stream in (False, True):
        answer = live.http.post(path, json={**body, "stream": stream})
        assert answer.status_code == (529 if path == "/v1/messages" else 429)
        assert answer.headers["retry-after"] == "4"
        assert error_of(answer)["message"] == "Too many wait."


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_no_engine_is_503_everywhere(start: Callable[..., Live], path: str, body: dict[str, Any]) -> None:
    live = start(refuse=EngineUnavailableError("secret detail"), healthy=False)
    answer = live.http.post(path, json=body)
    assert answer.status_code == 503
    assert "secret" not in error_of(answer)["message"]
    assert live.http.get("/health").status_code == 503
    assert live.http.get("/ping").status_code == 503
    assert live.http.get("/integrity").status_code == 503


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_engine_failure_is_500_and_says_what_the_engine_says(
    start: Callable[..., Live], path: str, body: dict[str, Any]
) -> None:
    answer = start(error_text="The step failed.").http.post(path, json=body)
    assert (answer.status_code, error_of(answer)["message"]) == (500, "The step failed.")


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_unforeseen_failure_tells_nothing_of_the_inside(
    start: Callable[..., Live], path: str, body: dict[str, Any]
) -> None:
    live = start(refuse=RuntimeError("/root/secret"))
    answer = live.http.post(path, json=body)
    assert answer.status_code == 500
    assert "secret" not in error_of(answer)["message"]
    assert live.http.get("/health").status_code == 200


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_deadline_is_504_and_aborts(start: Callable[..., Live], path: str, body: dict[str, Any]) -> None:
    live = start(ApiConfig(request_timeout_s=0.05), hold_after=0)
    answer = live.http.post(path, json=body)
    assert answer.status_code == 504
    assert "0.05 seconds" in error_of(answer)["message"]
    assert len(live.router.aborted) == 1


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_wrong_model_is_404(shared: Live, path: str, body: dict[str, Any]) -> None:
    answer = shared.http.post(path, json={**body, "model": "gpt-9"})
    assert answer.status_code == 404
    assert "smollm2" in error_of(answer)["message"]


def test_aliases_are_models_too(start: Callable[..., Live]) -> None:
    live = start(ApiConfig(served_model_names=("gpt-4o", "claude")))
    for name in ("gpt-4o", "claude", "smollm2"):
        assert live.http.post("/v1/chat/completions", json={**CHAT, "model": name}).json()["model"] == "gpt-4o"
        assert live.http.get(f"/v1/models/{name}").json()["id"] == name


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_prompt_beyond_the_context_names_both_numbers(shared: Live, path: str, body: dict[str, Any]) -> None:
    text = "word " * 700
    name = next(name for name in ("prompt", "input", "messages") if name in body)
    long = {name: [{"role": "user", "content": text}] if name == "messages" else text}
    answer = shared.http.post(path, json={**body, **long})
    assert answer.status_code == 400
    error = error_of(answer)
    tokens = re.findall(r"\d+", error["message"])
    assert int(tokens[0]) > 700
    assert tokens[1] == "512"
    assert error.get("code") in ("context_length_exceeded", None)


def test_roles_out_of_order_are_422_with_the_place(shared: Live) -> None:
    tool = {"role": "tool", "content": "1", "tool_call_id": "x"}
    answer = shared.http.post(CHATS, json={**CHAT, "messages": [CHAT["messages"][0], tool]})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_conversation", "messages.1.role")
    assert error["pointer"] == "/messages/1/role"


@pytest.mark.parametrize("path", ["/nowhere", "/v1/messages/nowhere", "/v1/chat/completions/x"])
def test_unknown_paths_have_the_shape_too(shared: Live, path: str) -> None:
    answer = shared.http.get(path)
    assert answer.status_code == 404
    assert error_of(answer)["message"]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/completions"])
def test_wrong_method_is_405_in_shape(shared: Live, path: str) -> None:
    answer = shared.http.get(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert error_of(answer)["message"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b'{"model": 1', b"[" * 100_000, b"\xff\xfe"])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
def test_bodies_that_are_no_request(shared: Live, path: str, content: bytes) -> None:
    answer = shared.http.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert error_of(answer)["message"]


def test_body_without_json_content_type_is_refused(shared: Live) -> None:
    answer = shared.http.post("/v1/completions", content=json.dumps(COMPLETION), headers={"content-type": "text/plain"})
    assert answer.status_code == 400
    assert "application/json" in error_of(answer)["message"]


def _pieces(total: int) -> Iterator[bytes]:
    for _ in range(total // 1000):
        yield b" " * 1000


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
def test_body_limit_counts_what_is_declared_and_what_comes(start: Callable[..., Live], path: str) -> None:
    live = start(ApiConfig(max_body_bytes=10_000))
    headers = {"content-type": "application/json"}
    for content in (b" " * 10_001, _pieces(20_000)):
        answer = live.http.post(path, content=content, headers=headers)
        assert answer.status_code == 413
        assert "10000" in error_of(answer)["message"]
    body = MESSAGE if path == "/v1/messages" else CHAT
    assert live.http.post(path, content=json.dumps(body).ljust(10_000), headers=headers).status_code == 200


def test_slow_body_is_408(start: Callable[..., Live]) -> None:
    live = start(ApiConfig(body_timeout_s=0.05))
    with socket.create_connection(("127.0.0.1", int(live.url.rpartition(":")[2])), timeout=10) as raw:
        raw.sendall(
            b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        answer = raw.recv(4096).decode()
    assert answer.startswith("HTTP/1.1 408")


def test_message_and_prompt_counts_are_bounded(start: Callable[..., Live]) -> None:
    live = start(ApiConfig(max_messages=2, max_prompts=2))
    messages = [{"role": "user", "content": "a"}] * 3
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/messages", MESSAGE)):
        answer = live.http.post(path, json={**body, "messages": messages})
        assert answer.status_code == 400
        assert "at most 2" in error_of(answer)["message"]
    answer = live.http.post("/v1/completions", json={**COMPLETION, "prompt": ["a", "b", "c"]})
    assert answer.status_code == 400
