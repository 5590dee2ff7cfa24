"""Bodies that are nearly right: whatever is in them, the server answers, and never with a failure of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api.live import Live
from tests.api.responses import WEATHER, serving

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
STRANGE = st.sampled_from(["", "\ud800", "\x00", "<|im_end|>", "id_1", "é" * 300, "a/b~c"])
TEXT = st.text(max_size=8) | STRANGE
NAMES = st.sampled_from(["weather", "f", "a b", "\ud800", "x" * 300])
SCHEMAS = st.dictionaries(st.sampled_from(["type", "properties", "minimum", "enum", "\ud800"]), JSON, max_size=2)
ROLES = st.sampled_from(["user", "assistant", "developer", "system", "tool"])


def mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Now and then something else."""
    return st.integers(0, 15).flatmap(lambda number: JSON if number == 0 else good)


def shaped(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object of that type."""
    return st.fixed_dictionaries({"type": st.just(kind), **{name: mostly(value) for name, value in fields.items()}})


PARTS = (
    shaped("input_text", text=TEXT)
    | shaped("output_text", text=TEXT, annotations=st.just([]))
    | shaped("refusal", refusal=TEXT)
    | mostly(shaped("refusal", refusal=TEXT))
)
CONTENT = TEXT | st.lists(PARTS, max_size=3)
ITEMS = (
    st.fixed_dictionaries({"role": ROLES, "content": CONTENT})
    | shaped("message", role=ROLES, content=CONTENT, id=TEXT)
    | shaped("function_call", call_id=TEXT, name=TEXT, arguments=TEXT | st.just("{}"))
    | shaped("function_call_output", call_id=TEXT, output=CONTENT)
    | shaped("custom_tool_call", call_id=TEXT, name=TEXT, input=TEXT)
    | shaped("custom_tool_call_output", call_id=TEXT, output=CONTENT)
    | shaped("reasoning", id=TEXT, summary=st.just([]), encrypted_content=TEXT | st.just("forebay.1.YQ=="))
    | mostly(shaped("item_reference", id=TEXT))
)
TOOLS = (
    st.just(WEATHER)
    | shaped("function", name=NAMES, parameters=SCHEMAS, strict=st.booleans(), description=TEXT)
    | shaped("custom", name=NAMES, description=TEXT)
)
FORMATS = (
    shaped("json_schema", name=NAMES, schema=SCHEMAS, strict=st.booleans()) | shaped("json_object") | shaped("text")
)
CHOICES = (
    st.sampled_from(["auto", "none", "required"])
    | shaped("function", name=st.just("weather") | NAMES)
    | shaped("allowed_tools", mode=st.just("auto"), tools=st.lists(shaped("function", name=st.just("weather"))))
)


def _asking(items: list[Any]) -> list[Any]:
    """With a question at the end."""
    return [*items, {"role": "user", "content": "x"}]


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "instructions": TEXT,
    "tools": st.lists(mostly(TOOLS), max_size=3),
    "tool_choice": CHOICES,
    "parallel_tool_calls": st.booleans(),
    "text": st.fixed_dictionaries({"format": FORMATS}),
    "reasoning": st.fixed_dictionaries({"effort": st.sampled_from(["none", "low", "high"])}),
    "truncation": st.just("auto"),
    "metadata": st.dictionaries(TEXT, TEXT, max_size=2),
    "include": st.just(["reasoning.encrypted_content"]),
    "top_logprobs": st.integers(0, 3),
    "max_output_tokens": st.integers(0, 100),
    "temperature": st.floats(0, 2),
    "stream": st.booleans(),
    "store": st.booleans(),
    "background": st.booleans(),
    "prompt_cache_key": TEXT,
    "user": TEXT,
}
BODIES = st.fixed_dictionaries(
    {"model": st.just("smollm2"), "input": TEXT | st.lists(ITEMS, max_size=3).map(_asking)},
    optional={name: mostly(value) for name, value in FIELDS.items()},
)


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving() as running:
        call = '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'
        running.router.answer = f"<think>\nx\n</think>\n\ny\n{call}"
        yield running


def test_no_body_makes_the_server_fail(live: Live) -> None:
    accepted = 0

    @settings(deadline=None, max_examples=60, derandomize=True, database=None)
    @given(BODIES)
    def check(body: dict[str, Any]) -> None:
        nonlocal accepted
        headers = {"content-type": "application/json"}
        answer = live.http.post("/v1/responses", content=json.dumps(body), headers=headers)
        assert answer.status_code in (200, 400, 404, 422), answer.text
        if answer.status_code == 200:
            accepted += 1
            assert "response.failed" not in answer.text
            return
        assert answer.json()["error"]["message"]

    check()
    assert accepted > 10, "many of the bodies are right"


@pytest.mark.parametrize("depth", [100, 900, 5000])
@pytest.mark.parametrize("place", ["schema", "tool", "metadata", "annotations"])
def test_depth_is_bounded(live: Live, depth: int, place: str) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    part = '"type": "input_text", "text": "x"'
    field = {
        "schema": f'"input": "Hi", "text": {{"format": {{"type": "json_schema", "name": "x", "schema": {deep}}}}}',
        "tool": f'"input": "Hi", "tools": [{{"type": "function", "name": "x", "parameters": {deep}}}]',
        "metadata": f'"input": "Hi", "metadata": {deep}',
        "annotations": f'"input": [{{"role": "user", "content": [{{{part}, "annotations": [{deep}]}}]}}]',
    }[place]
    content = f'{{"model": "smollm2", {field}}}'
    answer = live.http.post("/v1/responses", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400), answer.text
