"""Whatever a Messages request holds, the server answers it or says what is wrong with it."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx2
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.api.live import Live, events
from tests.api.thinking_recipe import MARKERS, ScriptRouter

SPELLED: Final = (*MARKERS, "<|im_start|>", "<|im_end|>", "\ud800", "\u0000", "a", '"', "{", "}", "\n", "1e999")
texts = st.lists(st.one_of(st.sampled_from(SPELLED), st.text(max_size=5)), max_size=4).map("".join)
names = st.one_of(st.sampled_from(["look", "run"]), texts)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
marks = st.sampled_from([None, {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h", "scope": "global"}])
text_blocks = st.fixed_dictionaries({"type": st.just("text"), "text": texts}, optional={"cache_control": marks})
ids = st.sampled_from(["a", "b", ""])
blocks = st.one_of(
    text_blocks,
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": texts, "signature": texts}),
    st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": texts}),
    st.fixed_dictionaries({"type": st.just("tool_use"), "id": ids, "name": names, "input": objects}),
    st.fixed_dictionaries(
        {"type": st.just("tool_result"), "tool_use_id": ids},
        optional={"content": st.one_of(texts, st.lists(text_blocks, max_size=2)), "is_error": st.booleans()},
    ),
    st.fixed_dictionaries({"type": texts}),
    values,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.one_of(texts, st.lists(blocks))}
    ),
    min_size=1,
    max_size=4,
)
LOOP: Final[list[dict[str, Any]]] = [
    {"role": "user", "content": "Go."},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]},
]
loops = st.tuples(texts, objects, texts).map(
    lambda made: [
        {"role": "user", "content": made[0]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": made[1]}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": made[2]}]},
    ]
)
schemas = st.one_of(objects, st.just({"type": "object"}), st.fixed_dictionaries({"properties": objects}))
tools = st.lists(
    st.fixed_dictionaries(
        {"name": names, "input_schema": schemas}, optional={"description": texts, "strict": st.booleans()}
    ),
    max_size=2,
)
fields = st.fixed_dictionaries(
    {"messages": st.one_of(messages, loops)},
    optional={
        "tools": tools,
        "tool_choice": st.one_of(
            st.sampled_from([{"type": "any"}, {"type": "auto", "disable_parallel_tool_use": True}, {"type": "none"}]),
            values,
        ),
        "system": st.one_of(texts, st.lists(text_blocks, max_size=2)),
        "thinking": st.one_of(st.sampled_from([{"type": "adaptive"}, {"type": "enabled", "budget_tokens": 2}]), values),
        "output_config": st.one_of(
            schemas.map(lambda schema: {"format": {"type": "json_schema", "schema": schema}}), values
        ),
        "stop_sequences": st.lists(texts, max_size=2),
        "stream": st.booleans(),
    },
)
answers = st.lists(st.one_of(st.sampled_from((*MARKERS, '{"name": "look", "arguments": {"a": 1.10}}')), texts)).map(
    lambda parts: "".join(parts).replace("\ud800", "")
)
STREAMED: Final[TypeAdapter[RawMessageStreamEvent]] = TypeAdapter(RawMessageStreamEvent)


def post(live: Live, path: str, fields: dict[str, Any]) -> httpx2.Response:
    """The answer to a request, which JSON can spell whatever it holds."""
    body = json.dumps({"model": "smollm2", **fields})
    return live.http.post(path, content=body, headers={"content-type": "application/json"})


def check_stream(text: str) -> None:
    """Every event is one that the client knows, and they are in order."""
    sent = [json.loads(data) for _, data in events(text)]
    assert sent[0]["type"] == "message_start"
    assert sent[-1]["type"] in ("message_stop", "error")
    still_open = None
    for one in sent:
        if one["type"] not in ("ping", "error"):
            STREAMED.validate_python(one)
        if one["type"] == "content_block_start":
            assert still_open is None
            still_open = one["index"]
        elif one["type"] in ("content_block_delta", "content_block_stop"):
            assert one["index"] == still_open
            still_open = None if one["type"] == "content_block_stop" else still_open
    assert still_open is None


@settings(max_examples=120, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(fields=fields, answer=answers, tokens=st.integers(3, 40))
@example(fields={"messages": LOOP}, answer="", tokens=3)
@example(fields={"messages": [{"role": "assistant", "content": []}]}, answer="", tokens=3)
@example(fields={"messages": LOOP[:1], "system": []}, answer="<tool_call>", tokens=9)
def test_no_request_makes_the_server_fail(scripted: Live, fields: dict[str, Any], answer: str, tokens: int) -> None:
    script = scripted.router
    assert isinstance(script, ScriptRouter)
    script.say(answer)
    got = post(scripted, "/v1/messages", {"max_tokens": tokens, **fields})
    if got.status_code == 200 and fields.get("stream"):
        check_stream(got.text)
    elif got.status_code == 200:
        usage = Message.model_validate(got.json()).usage
        prompt = {name: value for name, value in fields.items() if name not in ("stream", "stop_sequences")}
        counted = post(scripted, "/v1/messages/count_tokens", prompt)
        assert counted.json() == {"input_tokens": usage.input_tokens}
    else:
        error = got.json()["error"]
        malformed = got.status_code == 500 and "not valid JSON" in error["message"]
        assert malformed or got.status_code in (400, 422)
        assert error["type"] == ("api_error" if malformed else "invalid_request_error")
