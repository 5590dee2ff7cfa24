"""Tools, forms and reasoning of chat completions, with OpenAI's own client against a running server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.lib.streaming.chat import FunctionToolCallArgumentsDoneEvent
from openai.types.chat import ChatCompletion, ChatCompletionMessageFunctionToolCall
from tests.api.fakes import FakeRouter
from tests.api.live import Live, events
from tests.api.tool_recipe import LONG, tool_recipe

from forebay.api import ApiConfig
from forebay.core.grammar import GrammarSpec
from forebay.core.request import GenerateRequest

CHATS = "/v1/chat/completions"
ASK: list[Any] = [{"role": "user", "content": "How is the weather?"}]
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Of a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
TIME: dict[str, Any] = {"type": "function", "function": {"name": "time"}}
TOOLS: list[Any] = [WEATHER, TIME]
ARGUMENTS = '{"place": "Ulm", "height": 1.10, "n": 12345678901234567890123}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
TWO = f"<think>\nI look.\n</think>\n\nOne moment.\n{CALL}\n{NOW}"


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    recipe = tool_recipe()
    with Live(FakeRouter(recipe, model=LONG), recipe, ApiConfig()) as running:
        yield running


@pytest.fixture
def client(live: Live) -> Iterator[openai.OpenAI]:
    live.router.reset()
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def calls_of(answer: ChatCompletion) -> list[tuple[str, str]]:
    calls = answer.choices[0].message.tool_calls or []
    assert all(isinstance(call, ChatCompletionMessageFunctionToolCall) for call in calls)
    return [(c.function.name, c.function.arguments) for c in calls if c.type == "function"]


def ask(client: openai.OpenAI, **fields: Any) -> ChatCompletion:
    answer = client.chat.completions.create(**{"model": "smollm2", "messages": ASK, "tools": [WEATHER, TIME], **fields})
    assert isinstance(answer, ChatCompletion)
    return answer


def sent(live: Live) -> GenerateRequest:
    return live.router.requests[-1]


def counted(live: Live, kind: str) -> float:
    """How many problems of that kind the server has counted."""
    text = live.http.get("/metrics").text
    found = re.search(rf'^forebay_answer_problems_total{{.*kind="{kind}".*}} (.*)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_calls_text_and_reasoning_of_one_answer(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = TWO
    answer = ask(client)
    message = answer.choices[0].message
    assert calls_of(answer) == [("weather", ARGUMENTS), ("time", "{}")]
    assert message.content == "One moment."
    assert (message.model_extra or {})["reasoning_content"] == (message.model_extra or {})["reasoning"] == "I look."
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    reasoned = answer.usage.completion_tokens_details.reasoning_tokens or 0
    assert 5 < reasoned < answer.usage.completion_tokens / 2
    assert "problems" not in (answer.choices[0].model_extra or {})


def test_the_stream_says_the_same(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = TWO
    whole = ask(client)
    with client.chat.completions.stream(model="smollm2", messages=ASK, tools=TOOLS) as stream:
        done = [event for event in stream if isinstance(event, FunctionToolCallArgumentsDoneEvent)]
        final = stream.get_final_completion()
    assert [(event.name, event.arguments) for event in done] == calls_of(whole)
    message, other = final.choices[0].message, whole.choices[0].message
    assert (message.content, message.model_extra) == (other.content, other.model_extra)
    assert final.choices[0].finish_reason == "tool_calls"


def test_chunks_have_the_official_shape(live: Live) -> None:
    live.router.reset(answer=CALL)
    body = {"model": "smollm2", "messages": ASK, "tools": [WEATHER], "stream": True}
    found = [json.loads(d) for _, d in events(live.http.post(CHATS, json=body).text) if d != "[DONE]"]
    deltas = [chunk["choices"][0]["delta"] for chunk in found]
    assert deltas[0] == {"role": "assistant", "content": None, "refusal": None}
    first = deltas[1]["tool_calls"][0]
    assert set(first) == {"index", "id", "type", "function"}
    assert (first["type"], first["function"]) == ("function", {"name": "weather", "arguments": ""})
    rest = [delta["tool_calls"][0] for delta in deltas[2:-1]]
    assert all(set(call) == {"index", "function"} and set(call["function"]) == {"arguments"} for call in rest)
    assert len(rest) > 5, "arguments come as they are written"
    assert "".join(call["function"]["arguments"] for call in rest) == ARGUMENTS
    assert deltas[-1] == {}
    assert [chunk["choices"][0]["finish_reason"] for chunk in found] == [None] * (len(found) - 1) + ["tool_calls"]


def test_a_call_alone_has_no_content(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = CALL
    assert ask(client).choices[0].message.content is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("answer", "fields", "finish", "kind"),
    [
        ('<tool_call>\n{"name": "weather", "arguments": {"place": }}\n</tool_call>', {}, "error", "invalid_arguments"),
        (CALL, {"max_tokens": 30}, "length", "truncated_call"),
        (CALL.replace("weather", "whether"), {}, "tool_calls", "unknown_tool"),
        (CALL.replace("place", "plaice"), {}, "tool_calls", "missing_field"),
        ("<tool_call>\nnothing", {}, "stop", "malformed_call"),
    ],
)
def test_what_is_wrong_is_said(
    live: Live, answer: str, fields: dict[str, Any], finish: str, kind: str, stream: bool
) -> None:
    live.router.reset(answer=answer)
    before = counted(live, kind)
    body = {"model": "smollm2", "messages": ASK, "tools": [WEATHER], "stream": stream, **fields}
    reply = live.http.post(CHATS, json=body)
    if stream:
        choice = [json.loads(d) for _, d in events(reply.text) if d != "[DONE]"][-1]["choices"][0]
    else:
        choice = reply.json()["choices"][0]
    assert choice["finish_reason"] == finish
    assert kind in [problem["kind"] for problem in choice["problems"]]
    assert counted(live, kind) == before + 1


def test_without_tools_or_with_none_marked_text_is_text(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = CALL
    plain = client.chat.completions.create(model="smollm2", messages=ASK)
    none = ask(client, tool_choice="none")
    assert plain.choices[0].message.content == none.choices[0].message.content == CALL
    one, other = live.router.requests[-2:]
    assert one.prompt_ids == other.prompt_ids, "tools that may not be called are not shown"


def test_choices_of_tools_become_grammars(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = CALL
    ask(client)
    assert sent(live).sampling.grammar is None
    for choice, names in (
        ("required", {"weather", "time"}),
        ({"type": "function", "function": {"name": "time"}}, {"time"}),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]},
            },
            {"weather"},
        ),
    ):
        ask(client, tool_choice=choice)
        grammar = sent(live).sampling.grammar
        assert grammar is not None
        assert {name for name in ("weather", "time") if name in grammar.text} == names


def test_strict_tools_are_held_to_their_schemas_once_called(live: Live, client: openai.OpenAI) -> None:
    strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    ask(client, tools=[strict])
    grammar = sent(live).sampling.grammar
    assert grammar is not None
    assert '"required": ["place"]' in grammar.text
    assert "FREE" in grammar.text


def test_a_form_leaves_room_for_calls(live: Live, client: openai.OpenAI) -> None:
    ask(client, response_format={"type": "json_object"})
    grammar = sent(live).sampling.grammar
    assert grammar is not None
    assert "weather" in grammar.text
    ask(client, response_format={"type": "json_object"}, tool_choice="none")
    assert sent(live).sampling.grammar == GrammarSpec("json_object")


def test_shown_tools_don_t_depend_on_the_choice(live: Live, client: openai.OpenAI) -> None:
    ask(client)
    ask(client, tool_choice="required")
    one, other = live.router.requests
    assert one.prompt_ids == other.prompt_ids


def test_one_call_at_a_time_is_held_to(live: Live, client: openai.OpenAI) -> None:
    ask(client, tool_choice="required")
    ask(client, tool_choice="required", parallel_tool_calls=False)
    many, one = (request.sampling.grammar for request in live.router.requests)
    assert many is not None
    assert many != one


def test_a_strict_tool_whose_schema_cannot_be_compiled_is_named(live: Live) -> None:
    wrong = json.loads(json.dumps(WEATHER))
    wrong["function"] |= {"strict": True}
    wrong["function"]["parameters"]["properties"]["place"]["pattern"] = "("
    body = {"model": "smollm2", "messages": ASK, "tools": [TIME, wrong], "tool_choice": "required"}
    reply = live.http.post(CHATS, json=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == "tools.1.function.parameters"
    assert "/properties/place" in error["message"]


def test_an_agent_loops_over_several_turns(live: Live, client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "system", "content": "Use tools."}, *ASK]
    prompts: list[list[int]] = []
    for turn in range(4):
        live.router.answer = TWO if turn < 3 else "It is sunny."
        answer = ask(client, messages=messages, parallel_tool_calls=True)
        prompts.append(sent(live).prompt_ids)
        message = answer.choices[0].message
        messages.append(message.to_dict())
        part = {"type": "text", "text": "sunny"}
        messages += [{"role": "tool", "tool_call_id": c.id, "content": [part]} for c in message.tool_calls or []]
    assert answer.choices[0].message.content == "It is sunny."
    assert [len(ids) for ids in prompts] == sorted({len(ids) for ids in prompts})


def test_developer_is_todays_word_for_system(live: Live) -> None:
    live.router.reset()
    for role in ("system", "developer"):
        body = {"model": "smollm2", "messages": [{"role": role, "content": "Be brief."}, *ASK]}
        assert live.http.post(CHATS, json=body).status_code == 200
    one, other = live.router.requests
    assert one.prompt_ids == other.prompt_ids


def test_the_assistants_beginning_is_continued(live: Live, client: openai.OpenAI) -> None:
    begun = [*ASK, {"role": "assistant", "content": "It is"}]
    extra = {"continue_final_message": True, "add_generation_prompt": False}
    ask(client, messages=begun, extra_body=extra)
    assert live.recipe.decode(sent(live).prompt_ids).endswith("</think>\n\nIt is")


def test_stop_strings_act_in_visible_text_only(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = "<think>\nUlm first.\n</think>\nI go to Ulm now."
    answer = ask(client, stop=["Ulm"])
    assert answer.choices[0].message.content == "I go to "
    assert (answer.choices[0].message.model_extra or {})["reasoning"] == "Ulm first."
    live.router.answer = CALL
    assert calls_of(ask(client, stop=["Ulm"])) == [("weather", ARGUMENTS)]


def test_logprobs_cover_every_token_of_reasoning_and_calls(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = TWO
    whole = ask(client, logprobs=True, n=2).choices
    assert [len(choice.message.tool_calls or []) for choice in whole] == [2, 2]
    counts = [0, 0]
    stream: Any = client.chat.completions.create(
        model="smollm2", messages=ASK, tools=TOOLS, n=2, logprobs=True, stream=True
    )
    for chunk in stream:
        for choice in chunk.choices:
            counts[choice.index] += len((choice.logprobs and choice.logprobs.content) or [])
    assert counts == [len((choice.logprobs and choice.logprobs.content) or []) for choice in whole]


def test_tokenize_counts_tools(live: Live, client: openai.OpenAI) -> None:
    ask(client)
    found = live.http.post("/tokenize", json={"messages": ASK, "tools": [WEATHER, TIME]}).json()
    assert found["tokens"] == sent(live).prompt_ids


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
def test_other_media_are_refused_with_a_sentence(live: Live, kind: str) -> None:
    messages = [{"role": "user", "content": [{"type": kind, kind: {"url": "data:,"}}]}]
    reply = live.http.post(CHATS, json={"model": "smollm2", "messages": messages})
    assert reply.status_code == 400
    assert kind in reply.json()["error"]["message"]
