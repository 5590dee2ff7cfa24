"""Errors against a running server: each status in each protocol's shape, the field to blame, the limits."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from tests.api.live import Live

from forebay.api import ApiConfig
from forebay.core.errors import EngineUnavailableError, OverloadedError

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


@pytest.mark.parametrize(
    ("path", "field", "value", "param"),
    [
        (CHATS, "temperature", 3, "temperature"),
        (CHATS, "temperature", "hot", "temperature"),
        (CHATS, "top_p", -1, "top_p"),
        (CHATS, "n", 17, "n"),
        (CHATS, "stop", ["a"] * 17, "stop"),
        (CHATS, "stop", "", "stop"),
        (CHATS, "stop_token_ids", [49_152], "stop_token_ids"),
        (CHATS, "logit_bias", {"x": 1}, "logit_bias"),
        (CHATS, "logit_bias", {"1": 101}, "logit_bias"),
        (CHATS, "top_logprobs", 2, "top_logprobs"),
        (CHATS, "max_tokens", 5000, "max_tokens"),
        (CHATS, "max_completion_tokens", 0, "max_completion_tokens"),
        (CHATS, "min_tokens", 600, "min_tokens"),
        (CHATS, "stream_options", {"include_usage": True}, "stream_options"),
        (CHATS, "priority", 4, "priority"),
        (CHATS, "surprise", 1, "surprise"),
        (CHATS, "Odd-Name", 1, "Odd-Name"),
        (CHATS, "tools", [{"type": "function"}], "tools.0.function"),
        (CHATS, "tools", [{"type": "custom", "custom": {"name": "x"}}], "tools.0"),
        (CHATS, "tools", [{"type": "function", "function": {"name": "f"}}] * 2, "tools.1.function.name"),
        (CHATS, "functions", [{"name": "f"}], "functions"),
        (CHATS, "tool_choice", "sometimes", "tool_choice"),
        (CHATS, "tool_choice", "required", "tool_choice"),
        (CHATS, "tool_choice", {"type": "function", "function": {"name": "f"}}, "tool_choice"),
        (CHATS, "response_format", {"type": "json_schema"}, "response_format.json_schema"),
        (CHATS, "response_format", {"type": "grammar"}, "response_format.type"),
        (CHATS, "structured_outputs", {}, "structured_outputs"),
        (CHATS, "structured_outputs", {"regex": "(", "json_object": True}, "structured_outputs"),
        (CHATS, "structured_outputs", {"regex": "("}, "structured_outputs"),
        (CHATS, "structured_outputs", {"regex": "\ud800"}, "structured_outputs"),
        (CHATS, "structured_outputs", {"grammar": "start: nowhere"}, "structured_outputs"),
        (CHATS, "structured_outputs", {"json": "{"}, "structured_outputs.json"),
        (CHATS, "structured_outputs", {"json": "[1]"}, "structured_outputs.json"),
        (CHATS, "structured_outputs", {"json": "[" * 9999}, "structured_outputs.json"),
        (CHATS, "reasoning_effort", "much", "reasoning_effort"),
        (CHATS, "reasoning_effort", "high", "reasoning_effort"),
        (CHATS, "chat_template_kwargs", {"enable_thinking": True}, "chat_template_kwargs.enable_thinking"),
        (CHATS, "chat_template_kwargs", {"reasoning_effort": "low", "thinking": False}, "chat_template_kwargs"),
        (CHATS, "chat_template_kwargs", {"bos_token": "x"}, "chat_template_kwargs.bos_token"),
        (CHATS, "add_generation_prompt", False, "add_generation_prompt"),
        (CHATS, "modalities", ["text", "audio"], "modalities"),
        (CHATS, "store", True, "store"),
        (CHATS, "messages", [], "messages"),
        (CHATS, "messages", [{"role": "user"}], "messages.0.content"),
        (CHATS, "messages", [{"role": "boss", "content": "a"}], "messages.0.role"),
        (CHATS, "messages", [{"role": "user", "content": "a", "name": "b"}], "messages.0.name"),
        (CHATS, "messages", [{"role": "function", "content": "a", "name": "b"}], "messages.0.role"),
        (CHATS, "messages", [{"role": "user", "content": "a", "reasoning": "b"}], "messages.0.reasoning"),
        (CHATS, "messages", [{"role": "user", "content": "a", "tool_call_id": "b"}], "messages.0.tool_call_id"),
        (CHATS, "messages", [{"role": "tool", "content": "a"}], "messages.0.tool_call_id"),
        (CHATS, "messages", [{"role": "user", "content": "a", "refusal": "b"}], "messages.0.refusal"),
        (
            "/v1/chat/completions",
            "messages",
            [{"role": "user", "content": [{"type": "image_url"}]}],
            "messages.0.content.0",
        ),
        (
            CHATS,
            "messages",
            [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "b"}}]}],
            "messages.0.tool_calls.0.function.arguments",
        ),
        (CHATS, "messages", [{"role": "user", "content": "\ud800"}], "messages.0.content"),
        ("/v1/completions", "prompt", "", "prompt"),
        ("/v1/completions", "prompt", [], "prompt"),
        ("/v1/completions", "prompt", [49_152], "prompt"),
        ("/v1/completions", "suffix", "x", "suffix"),
        ("/v1/completions", "structured_outputs", {"regex": "("}, "structured_outputs"),
        ("/v1/completions", "best_of", 3, "best_of"),
        ("/v1/completions", "logprobs", 21, "logprobs"),
        ("/v1/completions", "max_tokens", 0, "max_tokens"),
    ],
)
def test_bad_fields_are_named(shared: Live, path: str, field: str, value: object, param: str) -> None:
    body = {**(CHAT if "chat" in path else COMPLETION), field: value}
    answer = shared.http.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    error = error_of(answer)
    assert error["message"]
    assert error["param"] == param, error


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", []),
        ("response_format", {"type": "text"}),
        ("tool_choice", "none"),
        ("tool_choice", "auto"),
        ("parallel_tool_calls", False),
        ("reasoning_effort", "none"),
        ("chat_template_kwargs", {}),
        ("chat_template_kwargs", {"enable_thinking": False}),
        ("add_generation_prompt", True),
        ("user", "u"),
        ("metadata", {"a": "b"}),
        ("store", False),
        ("modalities", ["text"]),
        ("logit_bias", None),
        ("stop", None),
        ("top_p", 0),
        ("top_k", -1),
    ],
)
def test_harmless_fields_are_taken(shared: Live, field: str, value: object) -> None:
    assert shared.http.post("/v1/chat/completions", json={**CHAT, field: value}).status_code == 200


def test_fields_that_keep_a_form_from_ending_are_refused(shared: Live) -> None:
    for path, body in ((CHATS, CHAT), ("/v1/completions", COMPLETION)):
        for field, value in (("ignore_eos", True), ("min_tokens", 5)):
            form = {"response_format": {"type": "json_object"}, field: value}
            answer = shared.http.post(path, json={**body, **form})
            assert answer.status_code == 400
            assert error_of(answer)["param"] == field


def test_a_schema_that_cannot_be_compiled_is_named_with_its_place(shared: Live) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}
    forms = [
        ("response_format", {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}),
        ("structured_outputs", {"json": schema}),
    ]
    for field, form in forms:
        answer = shared.http.post(CHATS, json={**CHAT, field: form})
        assert answer.status_code == 400
        assert "/properties/a" in error_of(answer)["message"]
        assert str(error_of(answer)["param"]).startswith(field)


def test_a_schema_may_be_nested_but_not_without_bound(shared: Live) -> None:
    for depth, status in ((20, 200), (900, 400)):
        schema: dict[str, Any] = {"type": "string"}
        for _ in range(depth):
            schema = {"type": "array", "items": schema}
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        assert shared.http.post(CHATS, json={**CHAT, "response_format": form}).status_code == status
        for strict in (False, True):
            tool = {"type": "function", "function": {"name": "f", "parameters": schema, "strict": strict}}
            assert shared.http.post(CHATS, json={**CHAT, "tools": [tool]}).status_code == status


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
