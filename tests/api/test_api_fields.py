"""Fields of OpenAI's requests against a running server: what is wrong is named, what asks for nothing is taken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.api.live import Live
from tests.api.protocols import CHAT, CHATS, COMPLETION, error_of


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
