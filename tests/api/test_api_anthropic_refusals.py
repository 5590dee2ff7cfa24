"""What a Messages request is refused for, with which status, and where the error points."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from tests.api.live import Live
from tests.api.messages_asking import ASK, TIME, WEATHER
from tests.api.thinking_recipe import ScriptRouter

USED: dict[str, Any] = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "a", "name": "time", "input": {}}],
}


@pytest.mark.parametrize(
    ("messages", "pointer"),
    [
        ([{"role": "assistant", "content": "Hi"}, *ASK], "/messages/0/role"),
        ([*ASK, USED], "/messages/1"),
        ([*ASK, USED, *ASK], "/messages/1/content/0"),
        ([*ASK, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}], "/messages/1/content/0"),
        (
            [*ASK, USED, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": "5"}]}],
            "/messages/2/content/0/tool_use_id",
        ),
        ([{"role": "system", "content": "Be brief."}], "/messages/0/role"),
    ],
)
def test_turns_out_of_order_are_refused_with_their_place(scripted: Live, messages: list[Any], pointer: str) -> None:
    answer = scripted.http.post("/v1/messages", json={"model": "smollm2", "max_tokens": 9, "messages": messages})
    assert answer.status_code == 422
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["error"]["pointer"] == pointer


def block(kind: str, **fields: Any) -> dict[str, Any]:
    """A user's message with one block."""
    return {"messages": [{"role": "user", "content": [{"type": kind} | fields]}]}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools of type 'web_search_20250305'"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "define a custom tool"),
        ({"tools": [WEATHER, WEATHER]}, "more than one tool named 'weather'"),
        ({"tools": [WEATHER | {"name": "a b"}]}, "tools.0.name"),
        ({"tools": [WEATHER | {"defer_loading": True}]}, "tools.0.defer_loading"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "time"}}, "'time' is not among"),
        ({"tool_choice": {"type": "any"}}, "'tools' offers none"),
        ({"tool_choice": {"type": "some"}}, "auto, any, tool or none"),
        ({"thinking": {"type": "enabled", "budget_tokens": 99}}, "greater than 'thinking.budget_tokens'"),
        ({"thinking": {"type": "between_tools"}}, "enabled, adaptive or disabled"),
        ({"thinking": {"type": "enabled"}}, "Missing required parameter: 'thinking.budget_tokens'"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "edits no context"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "thing"}}}},
            "output_config.format.schema: ",
        ),
        (block("image", source={}), "content of type 'image' isn't supported"),
        (block("document", source={}), "content of type 'document' isn't supported"),
        (block("tool_result", tool_use_id="a", content=[{"type": "image"}]), "content of type 'image' isn't"),
        (block("tool_use", id="a", name="b", input={}), "role user can't hold content of type 'tool_use'"),
        (block("thinking", thinking="Hm.", signature=""), "role user can't hold content of type 'thinking'"),
        (
            {
                "messages": [*ASK, {"role": "assistant", "content": "It"}],
                "thinking": {"type": "enabled", "budget_tokens": 5},
            },
            "begun",
        ),
        ({"container": "c"}, "'container' isn't supported"),
    ],
)
def test_what_cannot_be_done_is_a_400_that_says_so(scripted: Live, fields: dict[str, Any], said: str) -> None:
    answer = scripted.http.post("/v1/messages", json={"model": "smollm2", "max_tokens": 9, "messages": ASK} | fields)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    json.loads(answer.text)


def test_an_edit_that_keeps_everything_is_taken(claude: anthropic.Anthropic, script: ScriptRouter) -> None:
    script.say("Yes.")
    answer = claude.beta.messages.create(
        model="smollm2",
        max_tokens=9,
        messages=ASK,
        betas=["context-management-2025-06-27"],
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    )
    assert [block.type for block in answer.content] == ["text"]


MARKED = "a <|im_end|>"


@pytest.mark.parametrize(
    ("fields", "pointer", "offset"),
    [
        ({"system": [{"type": "text", "text": "x"}, {"type": "text", "text": MARKED}]}, "/system/1/text", 2),
        ({"system": MARKED}, "/system", 2),
        ({"messages": [{"role": "user", "content": MARKED}]}, "/messages/0/content", 2),
        (
            {"messages": [*ASK, {"role": "user", "content": [{"type": "text", "text": MARKED}]}]},
            "/messages/1/content/0/text",
            2,
        ),
        ({"tools": [WEATHER | {"description": MARKED}]}, "/tools/0/description", 2),
        (
            {"tools": [TIME, WEATHER | {"input_schema": {"properties": {"x": {"enum": [MARKED]}}}}]},
            "/tools/1/input_schema/properties/x/enum/0",
            2,
        ),
    ],
)
def test_markers_are_refused_where_the_request_asks(
    scripted: Live, script: ScriptRouter, fields: dict[str, Any], pointer: str, offset: int
) -> None:
    script.say("Yes.")
    body = {"model": "smollm2", "max_tokens": 9, "messages": ASK} | fields
    assert scripted.http.post("/v1/messages", json=body).status_code == 200
    answer = scripted.http.post("/v1/messages", json=body | {"strict_markers": True})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert (error["pointer"], error["offset"], error["marker"]) == (pointer, offset, "<|im_end|>")


@pytest.mark.parametrize(
    ("place", "pointer"),
    [
        (0, "/messages/1/content/0/thinking"),
        (1, "/messages/1/content/1/text"),
        (2, "/messages/1/content/2/input"),
        (3, "/messages/2/content/0/content/1/text"),
    ],
)
def test_markers_in_a_history_are_found_too(scripted: Live, place: int, pointer: str) -> None:
    said = [MARKED if at == place else "" for at in range(4)]
    answer = [
        {"type": "thinking", "thinking": said[0], "signature": ""},
        {"type": "text", "text": said[1]},
        {"type": "tool_use", "id": "a", "name": "time", "input": {"x": said[2]}},
    ]
    told = [{"type": "text", "text": text} for text in ("5", said[3])]
    result = {"type": "tool_result", "tool_use_id": "a", "content": told}
    messages = [*ASK, {"role": "assistant", "content": answer}, {"role": "user", "content": [result]}]
    body = {"model": "smollm2", "max_tokens": 9, "messages": messages, "strict_markers": True}
    assert scripted.http.post("/v1/messages", json=body).json()["error"]["pointer"] == pointer
