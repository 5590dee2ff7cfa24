"""Tools, thinking and formats of Anthropic's protocol, with Anthropic's own client against a running server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, TextBlock, ThinkingBlock, ToolUseBlock
from pydantic import BaseModel
from tests.api.live import Live, events
from tests.api.thinking_recipe import ScriptRouter, ThinkingRecipe, script_router, thinking_recipe

from forebay.api import ApiConfig
from forebay.recipe import Conversation, ToolCall, ToolSpec
from forebay.recipe import Message as Turn

ASK: list[Any] = [{"role": "user", "content": "How is the weather?"}]
WEATHER: Any = {
    "name": "weather",
    "description": "Of a place.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}
TIME: Any = {"name": "time", "input_schema": {"type": "object"}}
INPUT = '{"place": "Ulm", "height": 1.10, "n": 12345678901234567890123}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {INPUT}}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
TWO = f"<think>\nI look.\n</think>\n\nOne moment.\n{CALL}\n{NOW}"
ADAPTIVE: Any = {"type": "adaptive"}


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    router = script_router()
    with Live(router, router.recipe, ApiConfig()) as running:
        yield running


@pytest.fixture
def router(live: Live) -> ScriptRouter:
    assert isinstance(live.router, ScriptRouter)
    return live.router


@pytest.fixture(scope="module")
def client(live: Live) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=live.url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def thinker() -> ThinkingRecipe:
    return thinking_recipe()


def create(client: anthropic.Anthropic, **fields: Any) -> Message:
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 500, "messages": ASK} | fields
    made: Message = client.messages.create(**asked)
    return made


def either(client: anthropic.Anthropic, *, stream: bool, **fields: Any) -> Message:
    """The same answer, streamed or not."""
    if not stream:
        return create(client, **fields)
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 500, "messages": ASK} | fields
    with client.messages.stream(**asked) as streamed:
        return streamed.get_final_message()


def shape(message: Message) -> list[Any]:
    """What the blocks say."""
    said: list[Any] = []
    for block in message.content:
        match block:
            case ThinkingBlock():
                assert block.signature
                said.append(("thinking", block.thinking))
            case TextBlock():
                said.append(block.text)
            case ToolUseBlock():
                said.append((block.name, block.input))
    return said


def test_thinking_text_and_calls(client: anthropic.Anthropic, router: ScriptRouter) -> None:
    router.say(TWO)
    message = create(client, tools=[WEATHER, TIME], thinking=ADAPTIVE)
    assert shape(message) == [
        ("thinking", "I look."),
        "One moment.",
        ("weather", {"place": "Ulm", "height": 1.1, "n": 12345678901234567890123}),
        ("time", {}),
    ]
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens_details is not None
    assert 5 < message.usage.output_tokens_details.thinking_tokens < message.usage.output_tokens


def test_a_stream_accumulates_to_the_same_message(client: anthropic.Anthropic, router: ScriptRouter) -> None:
    router.say(TWO)
    whole = create(client, tools=[WEATHER, TIME], thinking=ADAPTIVE)
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 500, "messages": ASK, "thinking": ADAPTIVE}
    with client.messages.stream(tools=[WEATHER, TIME], **asked) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert shape(final) == shape(whole)
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert final.usage.output_tokens_details == whole.usage.output_tokens_details
    assert {"thinking", "signature", "text", "input_json"} <= set(kinds)


def test_the_order_of_events(live: Live, router: ScriptRouter) -> None:
    router.say(TWO)
    body = {"model": "smollm2", "max_tokens": 500, "messages": ASK, "stream": True}
    text = live.http.post("/v1/messages", json=body | {"tools": [WEATHER, TIME], "thinking": ADAPTIVE}).text
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


def test_the_input_is_the_models_own_text(live: Live, router: ScriptRouter) -> None:
    router.say(CALL)
    body = {"model": "smollm2", "max_tokens": 500, "messages": ASK, "tools": [WEATHER]}
    assert f'"input":{INPUT}' in live.http.post("/v1/messages", json=body).text


def test_results_become_turns_of_their_own(
    client: anthropic.Anthropic, router: ScriptRouter, thinker: ThinkingRecipe
) -> None:
    router.say("Fine.")
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
    counted = client.messages.count_tokens(model="smollm2", messages=messages, tools=[WEATHER, TIME])
    usage = create(client, messages=messages, tools=[WEATHER, TIME]).usage
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
    assert router.requests[-1].prompt_ids == thinker.encode_chat(expected).ids
    assert counted.input_tokens == usage.input_tokens == len(router.requests[-1].prompt_ids)


@pytest.mark.parametrize("budget", [1, 3, 20])
def test_thinking_ends_at_its_budget(client: anthropic.Anthropic, router: ScriptRouter, budget: int) -> None:
    router.say("<think>" + "again and " * 200 + "</think>\n\nSo be it.")
    message = create(client, thinking={"type": "enabled", "budget_tokens": budget})
    [said] = router.said
    begin, end = (thinking_recipe().vocabulary.control_id(marker) for marker in ("<think>", "</think>"))
    assert said.index(end) - said.index(begin) - 1 == budget
    assert message.stop_reason == "end_turn"
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.usage.output_tokens_details is not None
    assert message.usage.output_tokens_details.thinking_tokens == budget + 2


def test_thinking_shorter_than_its_budget_is_left_alone(client: anthropic.Anthropic, router: ScriptRouter) -> None:
    router.say(TWO)
    message = create(client, tools=[WEATHER, TIME], thinking={"type": "enabled", "budget_tokens": 400})
    assert router.said == [thinking_recipe().script(TWO)]
    assert message.stop_reason == "tool_use"


def test_thinking_is_off_unless_it_is_asked_for(
    client: anthropic.Anthropic, router: ScriptRouter, thinker: ThinkingRecipe
) -> None:
    router.say("Yes.")
    disabled: Any = {"type": "disabled"}
    for fields, thinking in [({}, False), ({"thinking": disabled}, False), ({"thinking": ADAPTIVE}, True)]:
        create(client, **fields)
        asked = Conversation([Turn("user", "How is the weather?")], thinking=thinking)
        assert router.requests[-1].prompt_ids == thinker.encode_chat(asked).ids


def test_thinking_can_be_left_out_of_the_answer(client: anthropic.Anthropic, router: ScriptRouter) -> None:
    router.say("<think>\nSecret.\n</think>\n\nYes.")
    for thinking in ({"type": "adaptive", "display": "omitted"}, ADAPTIVE):
        block = create(client, thinking=thinking).content[0]
        assert isinstance(block, ThinkingBlock)
        assert block.thinking == ("" if "display" in thinking else "Secret.")
        assert block.signature


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
def test_tool_choice(client: anthropic.Anthropic, router: ScriptRouter, choice: Any, names: list[str]) -> None:
    router.say(f"{NOW}\n{CALL}" if choice["type"] != "tool" else CALL)
    message = create(client, tools=[WEATHER, TIME], tool_choice=choice)
    assert [block.name for block in message.content if isinstance(block, ToolUseBlock)] == names
    assert message.stop_reason == "tool_use"


def test_no_choice_hides_the_tools(client: anthropic.Anthropic, router: ScriptRouter) -> None:
    router.say("No.")
    none = client.messages.count_tokens(
        model="smollm2", messages=ASK, tools=[WEATHER, TIME], tool_choice={"type": "none"}
    )
    assert none.input_tokens == client.messages.count_tokens(model="smollm2", messages=ASK).input_tokens


def test_strict_tools_follow_their_schemas(client: anthropic.Anthropic, router: ScriptRouter) -> None:
    strict = WEATHER | {"strict": True}
    strict["input_schema"] = WEATHER["input_schema"] | {"additionalProperties": False}
    router.say('<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm", "place": "Ulm"}}\n</tool_call>')
    message = create(client, tools=[strict], tool_choice={"type": "any"})
    [block] = message.content
    assert isinstance(block, ToolUseBlock)
    assert set(block.input) == {"place"}


@pytest.mark.parametrize("beta", [False, True])
def test_an_answer_in_a_format(live: Live, router: ScriptRouter, beta: bool) -> None:
    router.say('Sure: {"ok": true}')
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    form = {"type": "json_schema", "schema": schema | {"additionalProperties": False}}
    field = {"output_format": form} if beta else {"output_config": {"format": form, "effort": "low"}}
    answer = live.http.post("/v1/messages", json={"model": "smollm2", "max_tokens": 99, "messages": ASK, **field})
    [block] = answer.json()["content"]
    assert json.loads(block["text"]) == {"ok": True}


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_is_cut_is_no_success(client: anthropic.Anthropic, router: ScriptRouter, stream: bool) -> None:
    router.say(CALL)
    cut = len(thinking_recipe().script(CALL[: CALL.index("1.10")]))
    message = either(client, stream=stream, max_tokens=cut, tools=[WEATHER])
    assert message.stop_reason == "max_tokens"
    [block] = message.content
    assert isinstance(block, ToolUseBlock)
    assert block.input == {"place": "Ulm"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_malformed_call_is_an_error(client: anthropic.Anthropic, router: ScriptRouter, stream: bool) -> None:
    router.say('Well.\n<tool_call>\n{"name": "weather", "arguments": {"place": Ulm}}\n</tool_call>')
    with pytest.raises(anthropic.APIStatusError, match="not valid JSON") as caught:
        either(client, stream=stream, tools=[WEATHER])
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["error"]["type"] == "api_error"


def test_stop_sequences_see_text_only(client: anthropic.Anthropic, router: ScriptRouter) -> None:
    router.say("<think>\nUlm, I think.\n</think>\n\nIt is Ulm, I say.")
    message = create(client, thinking=ADAPTIVE, stop_sequences=[", I"])
    assert shape(message) == [("thinking", "Ulm, I think."), "It is Ulm"]
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", ", I")


@pytest.mark.parametrize("stream", [False, True])
def test_no_tokens_at_all_only_read_the_prompt(client: anthropic.Anthropic, router: ScriptRouter, stream: bool) -> None:
    router.say(TWO)
    message = either(client, stream=stream, max_tokens=0)
    assert (message.content, message.stop_reason, message.usage.output_tokens) == ([], "max_tokens", 0)
    assert router.requests[-1].sampling.max_tokens == 1


class Weather(BaseModel):
    city: str
    degrees: float


def test_a_parsed_answer(client: anthropic.Anthropic, router: ScriptRouter) -> None:
    router.say('{"city": "Ulm", "degrees": 1.5}')
    parsed = client.messages.parse(model="smollm2", max_tokens=50, messages=ASK, output_format=Weather)
    assert parsed.parsed_output == Weather(city="Ulm", degrees=1.5)


@anthropic.beta_tool
def weather(place: str) -> str:
    """Of a place."""
    return f"18 degrees in {place}"


def test_the_clients_own_tool_loop(client: anthropic.Anthropic, router: ScriptRouter) -> None:
    call = '<tool_call>\n{"name": "weather", "arguments": {"place": "Ulm"}}\n</tool_call>'
    router.say(f"<think>\nI look.\n</think>\n\n{call}\n{call}", call, "It is 18.")
    loop = client.beta.messages.tool_runner(
        model="smollm2", max_tokens=200, messages=ASK, tools=[weather], thinking=ADAPTIVE
    )
    assert [message.stop_reason for message in loop] == ["tool_use", "tool_use", "end_turn"]
    first, second, third = [request.prompt_ids for request in router.requests]
    assert second[: len(first) + len(router.said[0])] == first + router.said[0]
    assert third[: len(second) + len(router.said[1])] == second + router.said[1]
    assert thinking_recipe().decode(third).count("18 degrees in Ulm") == 3


def test_effort_changes_nothing_where_thinking_is_off(client: anthropic.Anthropic, router: ScriptRouter) -> None:
    router.say("Yes.")
    create(client)
    create(client, output_config={"effort": "high"})
    assert router.requests[0].prompt_ids == router.requests[1].prompt_ids


def test_a_system_message_may_follow_the_question(
    client: anthropic.Anthropic, router: ScriptRouter, thinker: ThinkingRecipe
) -> None:
    router.say("Yes.")
    create(client, messages=[*ASK, {"role": "system", "content": "Be brief."}])
    asked = Conversation(
        [Turn("user", "How is the weather?"), Turn("system", "Be brief.")], thinking=False, system_last=True
    )
    assert router.requests[-1].prompt_ids == thinker.encode_chat(asked).ids


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
def test_turns_out_of_order_are_refused_with_their_place(live: Live, messages: list[Any], pointer: str) -> None:
    answer = live.http.post("/v1/messages", json={"model": "smollm2", "max_tokens": 9, "messages": messages})
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
def test_what_cannot_be_done_is_a_400_that_says_so(live: Live, fields: dict[str, Any], said: str) -> None:
    answer = live.http.post("/v1/messages", json={"model": "smollm2", "max_tokens": 9, "messages": ASK} | fields)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    json.loads(answer.text)


def test_a_model_that_does_not_reason_takes_no_budget(shared: Live) -> None:
    body = {"model": "smollm2", "max_tokens": 9, "messages": ASK}
    answer = shared.http.post("/v1/messages", json=body | {"thinking": {"type": "enabled", "budget_tokens": 5}})
    assert answer.status_code == 400
    assert "can't be held to a budget" in answer.json()["error"]["message"]
    harmless = {"thinking": ADAPTIVE, "output_config": {"effort": "high"}}
    assert shared.http.post("/v1/messages", json=body | harmless).status_code == 200


def test_an_edit_that_keeps_everything_is_taken(client: anthropic.Anthropic, router: ScriptRouter) -> None:
    router.say("Yes.")
    client.beta.messages.create(
        model="smollm2",
        max_tokens=9,
        messages=ASK,
        betas=["context-management-2025-06-27"],
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    )


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
    live: Live, router: ScriptRouter, fields: dict[str, Any], pointer: str, offset: int
) -> None:
    router.say("Yes.")
    body = {"model": "smollm2", "max_tokens": 9, "messages": ASK} | fields
    assert live.http.post("/v1/messages", json=body).status_code == 200
    answer = live.http.post("/v1/messages", json=body | {"strict_markers": True})
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
def test_markers_in_a_history_are_found_too(live: Live, place: int, pointer: str) -> None:
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
    assert live.http.post("/v1/messages", json=body).json()["error"]["pointer"] == pointer
