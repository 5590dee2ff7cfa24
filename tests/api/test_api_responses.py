"""The Responses protocol against a running server, through the official client where that has a word for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest
from tests.api.fakes import MODEL
from tests.api.live import Live
from tests.api.responses import CALLS, SHELL, THOUGHT, WEATHER, client_of, serving, streamed

from forebay.api import ApiConfig
from forebay.core.errors import EngineUnavailableError, OverloadedError

MODEL_NAME = "smollm2"


@pytest.fixture(scope="module")
def running() -> Iterator[Live]:
    with serving() as live:
        yield live


def prompt(live: Live) -> str:
    """What the engine was given last, control tokens by their spelling."""
    recipe = live.recipe
    return b"".join(recipe.token_bytes(i) for i in live.router.requests[-1].prompt_ids).decode()


def test_a_text_in_a_text_out(live: Live, client: openai.OpenAI) -> None:
    live.router.cached_tokens = 5
    answer = client.responses.create(
        model=MODEL_NAME,
        input="Hi",
        instructions="Be kind.",
        metadata={"a": "b"},
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=50,
        user="u",
    )
    assert answer.output_text == "The forebay holds the water back."
    assert (answer.status, answer.error, answer.incomplete_details) == ("completed", None, None)
    assert (answer.instructions, answer.metadata, answer.temperature) == ("Be kind.", {"a": "b"}, 0.5)
    sent = live.router.requests[-1]
    assert (sent.sampling.temperature, sent.sampling.top_p, sent.sampling.max_tokens) == (0.5, 0.9, 50)
    assert prompt(live) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    usage = answer.usage
    assert usage is not None
    assert (usage.input_tokens, usage.input_tokens_details.cached_tokens) == (len(sent.prompt_ids), 5)
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


def test_reasoning_is_an_item_and_counted(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = THOUGHT
    answer = client.responses.create(model=MODEL_NAME, input="Hi", reasoning={"effort": "low", "summary": "auto"})
    reasoning, message = answer.output
    assert (reasoning.type, message.type, answer.output_text) == ("reasoning", "message", "Hello!")
    assert reasoning.type == "reasoning"
    assert [part.text for part in reasoning.content or []] == ["They greet."]
    assert (reasoning.summary, reasoning.encrypted_content) == ([], None)
    assert answer.usage is not None
    assert 0 < answer.usage.output_tokens_details.reasoning_tokens < answer.usage.output_tokens


def test_the_official_order_of_events(live: Live) -> None:
    live.router.answer = "<think>\nWeather.\n</think>\n\n" + CALLS
    events = streamed(live, input="Hi", tools=[WEATHER, SHELL])
    kinds = [event["type"].removeprefix("response.") for event in events]
    once = [kind for at, kind in enumerate(kinds) if at == 0 or kinds[at - 1] != kind]
    assert once == [
        "created",
        "in_progress",
        *("output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done"),
        *("content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.done"),
        *("content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        *("output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"),
        "completed",
    ]
    final = events[-1]["response"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert final["output"] == done
    assert [event["response"]["status"] for event in events[:2]] == ["in_progress"] * 2
    assert final["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_a_stream_and_a_whole_say_the_same(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = "<think>\nWeather.\n</think>\n\n" + CALLS
    whole = client.responses.create(model=MODEL_NAME, input="Hi", tools=[WEATHER, SHELL])
    with client.responses.stream(model=MODEL_NAME, input="Hi", tools=[WEATHER, SHELL]) as stream:
        final = stream.get_final_response()
    nameless = {"id", "call_id", "parsed_arguments", "parsed"}

    def shape(response: Any) -> list[dict[str, Any]]:
        return [{k: v for k, v in item.to_dict().items() if k not in nameless} for item in response.output]

    assert [item["type"] for item in shape(whole)] == ["reasoning", "message", "function_call", "custom_tool_call"]
    assert shape(whole)[2:] == shape(final)[2:]
    assert whole.output_text == final.output_text == "Let me see."


def test_arguments_are_as_the_model_wrote_them(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = CALLS
    answer = client.responses.create(model=MODEL_NAME, input="Hi", tools=[WEATHER, SHELL])
    _, call, custom = answer.output
    assert call.type == "function_call"
    assert call.arguments == '{"city": "Oslo", "at": 1.10}'
    assert custom.type == "custom_tool_call"
    assert (custom.name, custom.input) == ("shell", "ls\n")


def test_a_call_of_a_tool_that_is_not_there_is_delivered_and_reported(live: Live) -> None:
    live.router.answer = '<tool_call>\n{"name": "stock", "arguments": {}}\n</tool_call>'
    final = streamed(live, input="Hi", tools=[WEATHER])[-1]["response"]
    assert [(item["name"], item["status"]) for item in final["output"]] == [("stock", "completed")]
    assert [problem["kind"] for problem in final["problems"]] == ["unknown_tool"]
    live.router.answer = "Hello."
    assert "problems" not in streamed(live, input="Hi", tools=[WEATHER])[-1]["response"]


def test_an_answer_that_is_parsed(live: Live, client: openai.OpenAI) -> None:
    class City(pydantic.BaseModel):
        name: str

    live.router.answer = '{"name": "Oslo"}'
    answer = client.responses.parse(model=MODEL_NAME, input="Where?", text_format=City)
    assert answer.output_parsed == City(name="Oslo")
    grammar = live.router.requests[-1].sampling.grammar
    assert grammar is not None
    assert (grammar.kind, json.loads(grammar.text)["required"]) == ("json_schema", ["name"])


def test_json_object_and_required_calls_are_held_to_grammars(live: Live, client: openai.OpenAI) -> None:
    client.responses.create(model=MODEL_NAME, input="Where?", text={"format": {"type": "json_object"}})
    grammar = live.router.requests[-1].sampling.grammar
    assert grammar is not None
    assert grammar.kind == "json_object"
    allowed: Any = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}
    choices: list[Any] = ["required", {"type": "function", "name": "weather"}, allowed]
    for choice in choices:
        client.responses.create(model=MODEL_NAME, input="Hi", tools=[WEATHER, SHELL], tool_choice=choice)
        grammar = live.router.requests[-1].sampling.grammar
        assert grammar is not None
        assert ("shell" in grammar.text, "weather" in grammar.text) == (choice == "required", True)
    client.responses.create(model=MODEL_NAME, input="Hi", tools=[WEATHER], tool_choice="none")
    assert "weather" not in prompt(live)


def test_a_conversation_goes_on_with_the_very_ids_of_the_answer(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = "<think>\nWeather.\n</think>\n\n" + CALLS
    first = client.responses.create(model=MODEL_NAME, input="Hi", instructions="A", tools=[WEATHER, SHELL])
    before = live.router.requests[-1].prompt_ids
    calls = [item for item in first.output if item.type in ("function_call", "custom_tool_call")]
    outputs: Any = [
        {"type": "function_call_output", "call_id": calls[0].call_id, "output": "rain"},
        {"type": "custom_tool_call_output", "call_id": calls[1].call_id, "output": "a b"},
    ]
    live.router.answer = "It rains."
    client.responses.create(
        model=MODEL_NAME, previous_response_id=first.id, input=outputs, instructions="A", tools=[WEATHER, SHELL]
    )
    said = live.recipe.plain_ids("<think>\nWeather.\n</think>\n\n" + CALLS)
    after = live.router.requests[-1].prompt_ids
    assert after[: len(before) + len(said)] == [*before, *said]
    assert prompt(live).endswith(
        "<tool_response>\nrain\n</tool_response>\n<tool_response>\na b\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    client.responses.create(
        model=MODEL_NAME,
        input=[{"role": "user", "content": "Hi"}, *_sent_back(first), *outputs],
        instructions="A",
        tools=[WEATHER, SHELL],
    )
    assert live.router.requests[-1].prompt_ids == after, "the same items without a stored response"


def _sent_back(response: Any) -> list[Any]:
    return [item.to_dict() for item in response.output]


def test_instructions_are_not_carried_over(live: Live, client: openai.OpenAI) -> None:
    first = client.responses.create(model=MODEL_NAME, input="One", instructions="Old.")
    client.responses.create(model=MODEL_NAME, input="Two", instructions="New.", previous_response_id=first.id)
    assert "Old." not in prompt(live)
    assert prompt(live).startswith("<|im_start|>system\nNew.")


def test_kept_responses_are_read_listed_and_deleted(live: Live, client: openai.OpenAI) -> None:
    parts: Any = [{"type": "input_text", "text": "One"}, {"type": "input_text", "text": "Two"}]
    given: Any = [{"role": "developer", "content": "D"}, {"role": "user", "content": parts}]
    made = client.responses.create(model=MODEL_NAME, input=given)
    assert client.responses.retrieve(made.id).to_dict() == made.to_dict()
    listed = client.responses.input_items.list(made.id, order="asc")
    assert [item.to_dict()["content"] for item in listed] == [[{"type": "input_text", "text": "D"}], parts]
    newest = client.responses.input_items.list(made.id, limit=1)
    assert newest.has_more
    assert [len(page.data) for page in newest.iter_pages()] == [1, 1]
    reference: Any = {"type": "item_reference", "id": made.output[0].id}
    again: Any = [given[1], reference, {"role": "user", "content": "Again"}]
    client.responses.create(model=MODEL_NAME, input=again, store=False)
    assert "<|im_start|>assistant\nThe forebay holds" in prompt(live)
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError, match="not found"):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError, match="Previous response"):
        client.responses.create(model=MODEL_NAME, input="Go on", previous_response_id=made.id)
    with pytest.raises(openai.BadRequestError, match=r"Item with id .* not found"):
        client.responses.create(model=MODEL_NAME, input=[reference])


def test_what_is_not_to_be_stored_is_not(live: Live, client: openai.OpenAI) -> None:
    made = client.responses.create(model=MODEL_NAME, input="One", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_operators_see_how_many_are_kept() -> None:
    with serving(ApiConfig(stored_responses=2)) as live, client_of(live) as client:
        for _ in range(3):
            client.responses.create(model=MODEL_NAME, input="Hi")
        metrics = live.http.get("/metrics").text.splitlines()
    assert "forebay_stored_responses 2.0" in metrics
    assert "forebay_stored_responses_given_up_total 1.0" in metrics
    size = next(line for line in metrics if line.startswith("forebay_stored_responses_bytes "))
    assert float(size.rpartition(" ")[2]) > 1000


def test_a_stream_is_kept_when_its_last_event_comes(live: Live, client: openai.OpenAI) -> None:
    events = streamed(live, input="Hi")
    kept = client.responses.retrieve(events[-1]["response"]["id"])
    assert kept.to_dict() == events[-1]["response"]


def test_other_tenants_know_nothing_of_it() -> None:
    with serving(ApiConfig(api_keys=("a:one", "b:two"))) as live, client_of(live, "one") as one:
        made = one.responses.create(model=MODEL_NAME, input="One")
        with client_of(live, "two") as two:
            for call in (two.responses.retrieve, two.responses.delete, two.responses.cancel):
                with pytest.raises(openai.NotFoundError) as unknown:
                    call(made.id)
                assert unknown.value.body == _unknown(made.id)
            with pytest.raises(openai.NotFoundError):
                two.responses.input_items.list(made.id)
            with pytest.raises(openai.BadRequestError, match="not found"):
                two.responses.create(model=MODEL_NAME, input="x", previous_response_id=made.id)
            reference: Any = {"id": made.output[0].id}
            with pytest.raises(openai.BadRequestError, match="not found"):
                two.responses.create(model=MODEL_NAME, input=[reference])
        assert one.responses.retrieve(made.id).id == made.id


def _unknown(response_id: str) -> dict[str, Any]:
    text = f"Response with id '{response_id}' not found."
    return {"message": text, "type": "invalid_request_error", "param": None, "code": "not_found"}


def test_cut_answers_are_incomplete(live: Live) -> None:
    live.router.answer = CALLS
    events = streamed(live, input="Hi", tools=[WEATHER], max_output_tokens=22)
    last = events[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "incomplete")
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in last["response"]["output"]] == ["completed", "incomplete"]


def test_a_call_that_is_no_json_fails_the_response(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = '<tool_call>\n{"name": "weather", "arguments": {"city": nowhere}}\n</tool_call>'
    events = streamed(live, input="Hi", tools=[WEATHER])
    assert events[-1]["type"] == "response.failed"
    whole = client.responses.create(model=MODEL_NAME, input="Hi", tools=[WEATHER])
    assert (whole.status, whole.error is not None and whole.error.code) == ("failed", "server_error")
    with pytest.raises(openai.BadRequestError, match="is failed"):
        client.responses.create(model=MODEL_NAME, input="x", previous_response_id=whole.id)


def test_a_stream_that_breaks_ends_with_an_error_and_the_failed_response(live: Live) -> None:
    live.router.break_after, live.router.breaks = 2, EngineUnavailableError("gone")
    events = streamed(live, input="Hi")
    assert [event["type"] for event in events[-3:]] == ["response.output_item.done", "error", "response.failed"]
    assert events[-2]["code"] == "engine_unavailable"
    failed = events[-1]["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
    assert failed["output"][0]["status"] == "incomplete"
    assert live.http.get(f"/v1/responses/{failed['id']}").json()["status"] == "failed"


def test_a_refused_request_is_an_http_error(live: Live, client: openai.OpenAI) -> None:
    live.router.refuse = OverloadedError("full", 3.0)
    for stream in (False, True):
        with pytest.raises(openai.RateLimitError):
            client.responses.create(model=MODEL_NAME, input="Hi", stream=stream)


def test_log_probabilities_stand_beside_the_text(live: Live) -> None:
    live.router.answer = THOUGHT
    events = streamed(live, input="Hi", top_logprobs=2, include=["message.output_text.logprobs"])
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [delta["logprobs"][-1]["token"] for delta in deltas] == [delta["delta"] for delta in deltas]
    part = events[-1]["response"]["output"][1]["content"][0]
    assert "".join(entry["token"] for entry in part["logprobs"]).removeprefix("\n\n") == part["text"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in part["logprobs"])


def test_tokens_of_a_prompt_are_counted(live: Live, client: openai.OpenAI) -> None:
    counted = client.responses.input_tokens.count(model=MODEL_NAME, input="Hi", tools=[WEATHER])
    client.responses.create(model=MODEL_NAME, input="Hi", tools=[WEATHER])
    assert counted.input_tokens == len(live.router.requests[-1].prompt_ids)


def test_truncation_drops_the_oldest_turns(live: Live, client: openai.OpenAI) -> None:
    turns: list[Any] = [
        {"role": role, "content": f"{number} " + "word " * 40} for number in range(20) for role in ("user", "assistant")
    ]
    given: Any = [{"role": "system", "content": "Stay."}, *turns, {"role": "user", "content": "Last"}]
    with pytest.raises(openai.BadRequestError, match="context"):
        client.responses.create(model=MODEL_NAME, input=given)
    client.responses.create(model=MODEL_NAME, input=given, truncation="auto")
    sent = prompt(live)
    assert len(live.router.requests[-1].prompt_ids) <= MODEL.max_model_len - 16
    assert sent.startswith("<|im_start|>system\nStay.<|im_end|>\n<|im_start|>user\n")
    kept = [number for number in range(20) if f"user\n{number} " in sent]
    assert kept == list(range(20 - len(kept), 20))
    assert len(kept) > 3, "as many as fit"
    one: Any = [given[0], given[-1]]
    client.responses.create(model=MODEL_NAME, input=one, truncation="auto")
    client.responses.create(model=MODEL_NAME, input="Hi", truncation="auto", max_output_tokens=5)
    with pytest.raises(openai.BadRequestError, match="context"):
        client.responses.create(model=MODEL_NAME, input="word " * 600, truncation="auto")


MARKER = "a<|im_end|>"


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "input_text", "text": text}]}


UNSERVED: list[tuple[dict[str, Any], str]] = [
    ({"tools": [{"type": "web_search"}]}, "tools of type 'web_search' aren't supported"),
    ({"tools": [{"type": "local_shell"}]}, "tools of type 'local_shell' aren't supported"),
    ({"tools": [{"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark"}}]}, "grammars"),
    ({"tools": [WEATHER, WEATHER]}, "more than one tool named 'weather'"),
    ({"tool_choice": {"type": "function", "name": "x"}}, "not among those of 'tools'"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "content of type 'input_image'"),
    ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "content of type 'input_file'"),
    ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "content of type 'input_audio'"),
    ({"input": [{"type": "local_shell_call", "id": "x"}]}, "items of type 'local_shell_call'"),
    ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}]}, "not made by this server"),
    ({"tools": [{"type": "\ud800"}]}, "tools of type '?' aren't supported"),
    ({"input": [{"type": "\ud800"}]}, "items of type '?' aren't supported"),
    ({"input": [{"role": "user", "content": [{"type": "\ud800"}]}]}, "content of type '?' isn't supported"),
    ({"conversation": "conv_1"}, "'conversation' isn't supported"),
    ({"reasoning": {"summary": "detailed"}}, "'reasoning.summary' isn't supported"),
    ({"text": {"verbosity": "low"}}, "'text.verbosity' isn't supported"),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "no"}}}}, "text.format"),
    ({"prompt": {"id": "p"}}, "'prompt' isn't supported"),
    ({"background": True, "store": False}, "has to be stored"),
    ({"stream_options": {}}, "only allowed when 'stream' is true"),
    ({"max_output_tokens": 10**6}, "'max_output_tokens' is 1000000"),
    ({"nonsense": 1}, "Unrecognized request argument supplied: nonsense"),
    ({"model": "other"}, "is not served here"),
    ({"metadata": {"a": float("nan")}}, "metadata"),
]


@pytest.mark.parametrize(("fields", "says"), UNSERVED)
def test_what_can_not_be_served_is_said(live: Live, fields: dict[str, Any], says: str) -> None:
    body = json.dumps({"model": MODEL_NAME, "input": "Hi", **fields})
    answer = live.http.post("/v1/responses", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == (404 if "model" in fields else 400), answer.text
    error = answer.json()["error"]
    assert says in f"{error['message']} {error['param']}"
    assert error["param"]


MARKED: list[tuple[dict[str, Any], str]] = [
    ({"input": MARKER}, "/input"),
    ({"instructions": MARKER}, "/instructions"),
    (
        {"input": [{"role": "developer", "content": "x"}, {"role": "user", "content": MARKER}]},
        "/input/1/content",
    ),
    (
        {"instructions": "x", "input": [_said("developer", MARKER), _said("user", "y")]},
        "/input/0/content/0/text",
    ),
    (
        {
            "input": [
                _said("user", "x"),
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a<|im_end|>": 1}'},
                {"type": "function_call_output", "call_id": "c", "output": "y"},
            ]
        },
        "/input/1/arguments",
    ),
    (
        {
            "input": [
                _said("user", "x"),
                {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "{}"},
                {"type": "custom_tool_call_output", "call_id": "c", "output": MARKER},
            ]
        },
        "/input/2/output",
    ),
    ({"tools": [{**WEATHER, "description": MARKER}]}, "/tools/0/description"),
    ({"tools": [{**WEATHER, "parameters": {"properties": {MARKER: {}}}}]}, "/tools/0/parameters/properties"),
]


@pytest.mark.parametrize(("fields", "pointer"), MARKED)
def test_strict_markers_point_into_the_request(live: Live, fields: dict[str, Any], pointer: str) -> None:
    body = {"model": MODEL_NAME, "input": "Hi", **fields}
    assert live.http.post("/v1/responses", json=body).status_code == 200
    for strict, headers in (({"strict_markers": True}, {}), ({}, {"x-forebay-strict-markers": "1"})):
        answer = live.http.post("/v1/responses", json={**body, **strict}, headers=headers)
        assert answer.status_code == 422, answer.text
        error = answer.json()["error"]
        assert error["pointer"].startswith(pointer)
        assert error["marker"] == "<|im_end|>"


OUT_OF_ORDER: list[tuple[list[Any], str]] = [
    ([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "/input/1/role"),
    (
        [{"role": "user", "content": "x"}, {"type": "function_call_output", "call_id": "c", "output": "y"}],
        "/input/1",
    ),
]


@pytest.mark.parametrize(("items", "pointer"), OUT_OF_ORDER)
def test_what_is_out_of_order_has_a_pointer(live: Live, items: list[Any], pointer: str) -> None:
    answer = live.http.post("/v1/responses", json={"model": MODEL_NAME, "input": items})
    assert answer.status_code == 422, answer.text
    error = answer.json()["error"]
    assert error["pointer"].startswith(pointer)


def test_a_clients_own_words_come_back_as_they_were(live: Live) -> None:
    odd = {"type": "object", "properties": {"\ud800": {"const": 10**30}}, "x": 1.10}
    fields = {"metadata": {"k": "<|im_end|>"}, "tools": [{**WEATHER, "parameters": odd}]}
    body = json.dumps({"model": MODEL_NAME, "input": "Hi", "tool_choice": "none", **fields})
    answer = live.http.post("/v1/responses", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    said = json.loads(answer.text)
    odd_part = {"type": "input_text", "text": "x", "annotations": [odd]}
    body = json.dumps({"model": MODEL_NAME, "input": [{"role": "user", "content": [odd_part]}]})
    made = live.http.post("/v1/responses", content=body, headers={"content-type": "application/json"}).json()
    listed = live.http.get(f"/v1/responses/{made['id']}/input_items")
    assert json.loads(listed.text)["data"][0]["content"] == [odd_part]
    assert (said["metadata"], said["tools"][0]["parameters"]) == ({"k": "<|im_end|>"}, odd)
