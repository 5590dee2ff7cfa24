"""The requests' models: what wrong bodies cost, and how their errors read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from tests.api.live import Live

from forebay.api.anthropic_types import MessagesRequest
from forebay.api.openai_chat_types import ChatMessage, ChatRequest
from forebay.api.openai_types import UNSUPPORTED, CompletionRequest
from forebay.api.validation import describe

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
MANY = 5000


@pytest.mark.parametrize(
    ("model", "field", "value"),
    [
        (ChatRequest, "messages", [1] * MANY),
        (ChatRequest, "messages", [{"role": "user", "content": [1] * MANY}]),
        (ChatRequest, "stop", [1] * MANY),
        (ChatRequest, "tools", [1] * MANY),
        (ChatRequest, "tools", [{"type": "function", "function": {"name": 1}}] * MANY),
        (ChatRequest, "tool_choice", {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [1] * MANY}}),
        (ChatRequest, "messages", [{"role": "assistant", "tool_calls": [1] * MANY}]),
        (ChatRequest, "logit_bias", {f"k{i}": "a" for i in range(MANY)}),
        (ChatRequest, "messages", [{f"k{i}": 1 for i in range(MANY)}]),
        (CompletionRequest, "prompt", [None] * MANY),
        (CompletionRequest, "prompt", [[None] * 10] * MANY),
        (MessagesRequest, "system", [1] * MANY),
        (MessagesRequest, "stop_sequences", [1] * MANY),
    ],
)
def test_errors_do_not_grow_with_the_body(model: type[BaseModel], field: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate({"model": "m", field: value})
    assert caught.value.error_count() < 20


def test_many_unknown_keys_are_one_error() -> None:
    with pytest.raises(ValidationError) as caught:
        ChatRequest.model_validate({**CHAT, **{f"k{i}": 1 for i in range(MANY)}})
    assert caught.value.error_count() == 1


def test_no_coercion() -> None:
    for field, value in (("temperature", "1"), ("n", 1.5), ("n", True), ("stream", "yes"), ("seed", 2**63)):
        with pytest.raises(ValidationError):
            ChatRequest.model_validate({**CHAT, field: value})
    assert ChatRequest.model_validate({**CHAT, "temperature": 1}).temperature == 1


@pytest.mark.parametrize(
    ("error", "message", "param"),
    [
        ({"type": "extra_forbidden", "loc": ("body", "Odd Name")}, "Unrecognized request argument", "Odd Name"),
        ({"type": "missing", "loc": ("body", "messages", 0, "content")}, "Missing required", "messages.0.content"),
        ({"type": "missing", "loc": ("body",)}, "needs a JSON body", None),
        ({"type": "json_invalid", "loc": ("body", 7)}, "not valid JSON", None),
        ({"type": "int_type", "loc": ("body", "prompt", "list[int]", 3)}, "'prompt.3'", "prompt.3"),
        ({"type": "extra_forbidden", "loc": ("body", "x" * 10_000)}, "Unrecognized", "x" * 200),
    ],
)
def test_how_errors_read(error: dict[str, Any], message: str, param: str | None) -> None:
    text, named = describe([{"msg": "Input should be an integer", **error}])
    assert message in text
    assert named == param
    assert len(text) < 400


def test_every_unsupported_field_exists_in_some_request() -> None:
    models = (ChatRequest, CompletionRequest, ChatMessage)
    assert set(UNSUPPORTED) <= {name for model in models for name in model.model_fields}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "\ud800"}]}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "\ud800"}]}),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "\ud800"}]}]}),
        ("/v1/responses", {"input": [{"type": "\ud800"}]}),
        ("/v1/responses", {"input": "a", "tools": [{"type": "\ud800"}]}),
        ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "\ud800"}]}]}),
        (
            "/v1/messages",
            {"max_tokens": 9, "messages": [{"role": "user", "content": "a"}], "tools": [{"type": "\ud800"}]},
        ),
    ],
)
def test_a_kind_that_is_no_unicode_is_a_400(shared: Live, path: str, body: dict[str, Any]) -> None:
    text = json.dumps({"model": "smollm2", **body})
    answer = shared.http.post(path, content=text, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "isn't supported" in answer.text or "aren't supported" in answer.text
