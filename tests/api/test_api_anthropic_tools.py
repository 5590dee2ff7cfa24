"""Tools and formats of Anthropic's protocol, with Anthropic's own client against a running server."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from anthropic.types import ToolUseBlock
from pydantic import BaseModel
from tests.api.live import Live, events
from tests.api.messages_asking import ADAPTIVE, ASK, CALL, INPUT, NOW, TIME, TWO, WEATHER, create, either, shape
from tests.api.thinking_recipe import ScriptRouter, script_ids, thinking_recipe

from forebay.recipe import Conversation, ToolCall, ToolSpec
from forebay.recipe import Message as Turn


def test_thinking_text_and_calls(claude: anthropic.Anthropic, script: ScriptRouter) -> None:
    script.say(TWO)
    message = create(claude, tools=[WEATHER, TIME], thinking=ADAPTIVE)
    assert shape(message) == [
        ("thinking", "I look."),
        "One moment.",
        ("weather", {"place": "Ulm", "height": 1.1, "n": 12345678901234567890123}),
        ("time", {}),
    ]
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens_details is not None
    assert 5 < message.usage.output_tokens_details.thinking_tokens < message.usage.output_tokens


def test_a_stream_accumulates_to_the_same_message(claude: anthropic.Anthropic, script: ScriptRouter) -> None:
    script.say(TWO)
    whole = create(claude, tools=[WEATHER, TIME], thinking=ADAPTIVE)
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 500, "messages": ASK, "thinking": ADAPTIVE}
    with claude.messages.stream(tools=[WEATHER, TIME], **asked) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert shape(final) == shape(whole)
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert final.usage.output_tokens_details == whole.usage.output_tokens_details
    assert {"thinking", "signature", "text", "input_json"} <= set(kinds)


def test_the_order_of_events(scripted: Live, script: ScriptRouter) -> None:
    script.say(TWO)
    body = {"model": "smollm2", "max_tokens": 500, "messages": ASK, "stream": True}
    text = scripted.http.post("/v1/messages", json=body | {"tools": [WEATHER, TIME], "thinking": ADAPTIVE}).text
    sent = [json.loads(data) for _, data in events(text)]
    assert [one["type"] for one in sent[:3]] == ["message_start", "ping", "content_block_start"]
    assert [one["type"] for one in sent[-2:]] == ["message_delta", "message_stop"]
    blocks = [one for one in sent if "index" in one]
    assert [one["index"] for one in blocks] == sorted(one["index"] for one in blocks)
    for index, kind in enumerate(["thinking", "text", "tool_use", "tool_use"]):
        first, *middle, last = [one for one in blocks if one["index"] == index]
        assert (first["type"], first["content_block"]["type"]) == ("content_block_start", kind)
        assert last["type"] == "content_block_stop"
        assert {one["type"] for one in middle} == {"content_block_delta"}
        if kind == "thinking":
            assert middle[-1]["delta"]["type"] == "signature_delta"
    fragments = [one["delta"]["partial_json"] for one in blocks if one.get("delta", {}).get("partial_json")]
    assert "".join(fragments) == INPUT + "{}"
    assert len(fragments) > 10


def test_the_input_is_the_models_own_text(scripted: Live, script: ScriptRouter) -> None:
    script.say(CALL)
    body = {"model": "smollm2", "max_tokens": 500, "messages": ASK, "tools": [WEATHER]}
    assert f'"input":{INPUT}' in scripted.http.post("/v1/messages", json=body).text


def test_results_become_turns_of_their_own(
    claude: anthropic.Anthropic,
    script: ScriptRouter,
) -> None:
    script.say("Fine.")
    used = [
        {"type": "thinking", "thinking": "Hm.", "signature": "another server's"},
        {"type": "redacted_thinking", "data": "unreadable"},
        {"type": "text", "text": "I look"},
        {"type": "text", "text": "."},
        {"type": "tool_use", "id": "a", "name": "weather", "input": {"place": "Ülm"}},
        {"type": "tool_use", "id": "b", "name": "time", "input": {}},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "b", "content": "no clock", "is_error": True},
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "5"}]},
        {"type": "text", "text": "Go on."},
    ]
    messages = [*ASK, {"role": "assistant", "content": used}, {"role": "user", "content": results}]
    counted = claude.messages.count_tokens(model="smollm2", messages=messages, tools=[WEATHER, TIME])
    usage = create(claude, messages=messages, tools=[WEATHER, TIME]).usage
    calls = [ToolCall("a", "weather", '{"place": "Ülm"}'), ToolCall("b", "time", "{}")]
    expected = Conversation(
        [
            Turn("user", "How is the weather?"),
            Turn("assistant", "I look.", "Hm.", calls),
            Turn("tool", ["Error:", "no clock"], call_id="b"),
            Turn("tool", "5", call_id="a"),
            Turn("user", "Go on."),
        ],
        [ToolSpec("weather", "Of a place.", WEATHER["input_schema"]), ToolSpec("time", "", {"type": "object"})],
        thinking=False,
    )
    assert script.requests[-1].prompt_ids == thinking_recipe().encode_chat(expected).ids
    assert counted.input_tokens == usage.input_tokens == len(script.requests[-1].prompt_ids)


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"type": "any"}, ["time", "weather"]),
        ({"type": "any", "disable_parallel_tool_use": True}, ["time"]),
        ({"type": "tool", "name": "weather"}, ["weather"]),
        ({"type": "auto"}, ["time", "weather"]),
        ({"type": "auto", "disable_parallel_tool_use": True}, ["time"]),
    ],
)
def test_tool_choice(claude: anthropic.Anthropic, script: ScriptRouter, choice: Any, names: list[str]) -> None:
    script.say(f"{NOW}\n{CALL}" if choice["type"] != "tool" else CALL)
    message = create(claude, tools=[WEATHER, TIME], tool_choice=choice)
    assert [block.name for block in message.content if isinstance(block, ToolUseBlock)] == names
    assert message.stop_reason == "tool_use"


def test_no_choice_hides_the_tools(claude: anthropic.Anthropic, script: ScriptRouter) -> None:
    script.say("No.")
    none = claude.messages.count_tokens(
        model="smollm2", messages=ASK, tools=[WEATHER, TIME], tool_choice={"type": "none"}
    )
    assert none.input_tokens == claude.messages.count_tokens(model="smollm2", messages=ASK).input_tokens


def test_strict_tools_follow_their_schemas(claude: anthropic.Anthropic, script: ScriptRouter) -> None:
    strict = WEATHER | {"strict": True}
    strict["input_schema"] = WEATHER["input_schema"] | {"additionalProperties": False}
    script.say('<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm", "place": "Ulm"}}\n</tool_call>')
    message = create(claude, tools=[strict], tool_choice={"type": "any"})
    [block] = message.content
    assert isinstance(block, ToolUseBlock)
    assert set(block.input) == {"place"}


@pytest.mark.parametrize("beta", [False, True])
def test_an_answer_in_a_format(scripted: Live, script: ScriptRouter, beta: bool) -> None:
    script.say('Sure: {"ok": true}')
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    form = {"type": "json_schema", "schema": schema | {"additionalProperties": False}}
    field = {"output_format": form} if beta else {"output_config": {"format": form, "effort": "low"}}
    answer = scripted.http.post("/v1/messages", json={"model": "smollm2", "max_tokens": 99, "messages": ASK, **field})
    [block] = answer.json()["content"]
    assert json.loads(block["text"]) == {"ok": True}


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_is_cut_is_no_success(claude: anthropic.Anthropic, script: ScriptRouter, stream: bool) -> None:
    script.say(CALL)
    cut = len(script_ids(thinking_recipe(), CALL[: CALL.index("1.10")]))
    message = either(claude, stream=stream, max_tokens=cut, tools=[WEATHER])
    assert message.stop_reason == "max_tokens"
    [block] = message.content
    assert isinstance(block, ToolUseBlock)
    assert block.input == {"place": "Ulm"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_malformed_call_is_an_error(claude: anthropic.Anthropic, script: ScriptRouter, stream: bool) -> None:
    script.say('Well.\n<tool_call>\n{"name": "weather", "arguments": {"place": Ulm}}\n</tool_call>')
    with pytest.raises(anthropic.APIStatusError, match="not valid JSON") as caught:
        either(claude, stream=stream, tools=[WEATHER])
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["error"]["type"] == "api_error"


@pytest.mark.parametrize("stream", [False, True])
def test_no_tokens_at_all_only_read_the_prompt(claude: anthropic.Anthropic, script: ScriptRouter, stream: bool) -> None:
    script.say(TWO)
    message = either(claude, stream=stream, max_tokens=0)
    assert (message.content, message.stop_reason, message.usage.output_tokens) == ([], "max_tokens", 0)
    assert script.requests[-1].sampling.max_tokens == 1


class Weather(BaseModel):
    city: str
    degrees: float


def test_a_parsed_answer(claude: anthropic.Anthropic, script: ScriptRouter) -> None:
    script.say('{"city": "Ulm", "degrees": 1.5}')
    parsed = claude.messages.parse(model="smollm2", max_tokens=50, messages=ASK, output_format=Weather)
    assert parsed.parsed_output == Weather(city="Ulm", degrees=1.5)


@anthropic.beta_tool
def weather(place: str) -> str:
    """Of a place."""
    return f"18 degrees in {place}"


def test_the_clients_own_tool_loop(claude: anthropic.Anthropic, script: ScriptRouter) -> None:
    call = '<tool_call>\n{"name": "weather", "arguments": {"place": "Ulm"}}\n</tool_call>'
    script.say(f"<think>\nI look.\n</think>\n\n{call}\n{call}", call, "It is 18.")
    loop = claude.beta.messages.tool_runner(
        model="smollm2", max_tokens=200, messages=ASK, tools=[weather], thinking=ADAPTIVE
    )
    assert [message.stop_reason for message in loop] == ["tool_use", "tool_use", "end_turn"]
    first, second, third = [request.prompt_ids for request in script.requests]
    assert second[: len(first) + len(script.said[0])] == first + script.said[0]
    assert third[: len(second) + len(script.said[1])] == second + script.said[1]
    assert thinking_recipe().decode(third).count("18 degrees in Ulm") == 3


def test_a_system_message_may_follow_the_question(
    claude: anthropic.Anthropic,
    script: ScriptRouter,
) -> None:
    script.say("Yes.")
    create(claude, messages=[*ASK, {"role": "system", "content": "Be brief."}])
    asked = Conversation(
        [Turn("user", "How is the weather?"), Turn("system", "Be brief.")], thinking=False, system_last=True
    )
    assert script.requests[-1].prompt_ids == thinking_recipe().encode_chat(asked).ids
