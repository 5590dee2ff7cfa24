"""Chat requests that are nearly right, and answers of any kind: no request fails the server, and no answer breaks a
rule of the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st
from tests.api.fakes import FakeRouter
from tests.api.live import Live, events
from tests.api.tool_recipe import LONG, tool_recipe

from forebay.api import ApiConfig

CHATS = "/v1/chat/completions"
BOUNDED = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
WORDS = st.sampled_from(["", "a", "<tool_call>", "<|im_end|>", "</think>", "weather", "\ud800", "\x00", "é" * 40, "{"])
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
KEYWORDS = st.sampled_from(
    ["type", "properties", "required", "items", "enum", "pattern", "$ref", "anyOf", "const", "minLength", "format"]
)
SCHEMA: st.SearchStrategy[Any] = st.dictionaries(KEYWORDS, JSON, max_size=3) | st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(WORDS, st.dictionaries(KEYWORDS, JSON, max_size=2))}
)


def part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


CONTENT = WORDS | st.lists(WORDS.map(part), max_size=2) | st.none()
CALL = st.fixed_dictionaries(
    {
        "id": WORDS,
        "type": st.just("function"),
        "function": st.fixed_dictionaries({"name": WORDS, "arguments": WORDS | JSON.map(json.dumps)}),
    }
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]), "content": CONTENT},
    optional={
        "tool_calls": st.lists(CALL, max_size=2),
        "tool_call_id": WORDS,
        "name": WORDS,
        "reasoning_content": WORDS,
    },
)
TOOL = st.fixed_dictionaries(
    {
        "type": st.just("function"),
        "function": st.fixed_dictionaries(
            {"name": WORDS}, optional={"parameters": SCHEMA, "strict": st.booleans(), "description": WORDS}
        ),
    }
)
CHOICE = st.sampled_from(["auto", "none", "required"]) | WORDS.map(
    lambda name: {"type": "function", "function": {"name": name}}
)
FORM = st.sampled_from([{"type": "json_object"}, {"type": "text"}]) | SCHEMA.map(
    lambda schema: {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
)
BODY = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE, min_size=1, max_size=4)},
    optional={
        "tools": st.lists(TOOL, max_size=2),
        "tool_choice": CHOICE,
        "parallel_tool_calls": st.booleans(),
        "response_format": FORM,
        "structured_outputs": st.dictionaries(
            st.sampled_from(["regex", "grammar", "choice", "json"]), JSON, max_size=1
        ),
        "reasoning_effort": st.sampled_from(["none", "low", "xhigh"]),
        "chat_template_kwargs": st.just({"enable_thinking": True}),
        "continue_final_message": st.booleans(),
        "stop": st.lists(WORDS, max_size=2),
        "n": st.integers(1, 3),
        "logprobs": st.booleans(),
        "stream": st.booleans(),
    },
)


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    recipe = tool_recipe()
    with Live(FakeRouter(recipe, model=LONG), recipe, ApiConfig()) as running:
        yield running


def send(live: Live, body: dict[str, Any]) -> httpx2.Response:
    """JSON with lone surrogates as they come, which the client's own encoder refuses. A failure prints both sides."""
    content = json.dumps({"model": "smollm2", **body})
    note(f"asked: {content}")
    reply = live.http.post(CHATS, content=content, headers={"content-type": "application/json"})
    note(f"{reply.status_code}: {reply.text}")
    return reply


@BOUNDED
@given(body=BODY)
def test_no_request_fails_the_server(live: Live, body: dict[str, Any]) -> None:
    live.router.reset()
    reply = send(live, body)
    assert reply.status_code in (200, 400, 422), reply.text
    if reply.status_code != 200:
        assert reply.json()["error"]["message"]


PIECES = st.sampled_from(
    [
        *("<think>", "</think>", "<tool_call>", "</tool_call>", "\n", '{"name": ', '"weather"', ', "arguments": '),
        *('{"place": "Ulm"}', "}", "Well, ", "é", "<tool", "_call>", '{"place": 1.10, ', " "),
    ]
)


def choices_of(chunks: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """What a client puts together from a stream."""
    found: list[dict[str, Any]] = [{"content": None, "reasoning": "", "calls": [], "finish": []} for _ in range(count)]
    for chunk in chunks:
        for choice in chunk["choices"]:
            put, delta = found[choice["index"]], choice["delta"]
            if delta.get("content") is not None:
                put["content"] = (put["content"] or "") + delta["content"]
            put["reasoning"] += delta.get("reasoning", "")
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    assert call["index"] == len(put["calls"])
                    put["calls"].append([call["function"]["name"], ""])
                put["calls"][call["index"]][1] += call["function"]["arguments"]
            put["finish"] += [choice["finish_reason"]] if choice["finish_reason"] else []
    return found


BROKEN_CALL = '<tool_call>{"name": "weather"<tool></tool_call>'


@BOUNDED
@example(answer=f'{BROKEN_CALL} In {{"place": "Ulm"}}', n=2, stop=True)
@example(answer=f'{BROKEN_CALL} In {{"place": "Ulm"}}', n=1, stop=False)
@given(answer=st.lists(PIECES, max_size=16).map("".join), n=st.integers(1, 2), stop=st.booleans())
def test_whole_and_streamed_answers_agree_whatever_the_model_says(live: Live, answer: str, n: int, stop: bool) -> None:
    live.router.reset(answer=answer or "x")
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "n": n, "stop": ["Ulm"] if stop else []}
    body["tools"] = [{"type": "function", "function": {"name": "weather"}}]
    whole = send(live, body)
    assert whole.status_code == 200, whole.text
    streamed = send(live, {**body, "stream": True}).text
    chunks = [json.loads(data) for _, data in events(streamed) if data != "[DONE]"]
    for choice, put in zip(whole.json()["choices"], choices_of(chunks, n), strict=True):
        message = choice["message"]
        calls = [[c["function"]["name"], c["function"]["arguments"]] for c in message.get("tool_calls", [])]
        assert put["finish"] == [choice["finish_reason"]]
        assert (put["content"] or "", put["reasoning"], put["calls"]) == (
            message["content"] or "",
            message.get("reasoning", ""),
            calls,
        )
        if choice["finish_reason"] == "tool_calls":
            assert all(isinstance(json.loads(arguments), dict) for _, arguments in calls)
        if choice["finish_reason"] == "stop":
            assert not calls
