"""Kept answers: what finds them, what doesn't, and what they may take."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api.fakes import FakeRouter
from tests.api.live import Live
from tests.api.tool_recipe import LONG, tool_recipe

from forebay.api import ApiConfig
from forebay.api.answer_store import AnswerStore, HistoryKey, canonical
from forebay.recipe import KeptAnswer, Message, ToolCall

CHATS = "/v1/chat/completions"
TOOLS: list[Any] = [{"type": "function", "function": {"name": "f"}}]
ARGUMENTS = '{"b": 1.10, "a": 12345678901234567890123,  "c": 1e3, "a": 2}'
CALL = f'<tool_call>\n{{"name": "f",   "arguments": {ARGUMENTS}}}\n</tool_call>'
ANSWER = f"<think>\nWell.\n</think>\n\nI see.\n{CALL}"


def key(*messages: Message, tenant: str = "t") -> bytes:
    history = HistoryKey(tenant)
    for message in messages:
        history.add(message)
    return history.digest


USER, REPLY = Message("user", "Hi"), Message("assistant", "Hello")


def test_what_a_key_depends_on() -> None:
    calling = Message("assistant", "", calls=[ToolCall("1", "f", "{}")])
    others = [
        key(USER, REPLY, tenant="u"),
        key(REPLY),
        key(USER),
        key(Message("user", "Ho"), REPLY),
        key(Message("system", "Hi"), REPLY),
        key(USER, Message("assistant", "Hell", call_id="o")),
        key(USER, calling),
        key(USER, Message("assistant", "", calls=[ToolCall("2", "f", "{}")])),
        key(USER, Message("assistant", "", calls=[ToolCall("1", "g", "{}")])),
        key(USER, Message("assistant", "", calls=[ToolCall("1", "f", '{"a": 1}')])),
        key(Message("user", ["H", "i"]), REPLY),
        key(Message("user", "Hi", name="Al"), REPLY),
    ]
    assert len({key(USER, REPLY), *others}) == len(others) + 1
    assert key(USER, REPLY) == key(USER, Message("assistant", ["Hel", "lo"], reasoning="It greets."))


@settings(deadline=None, derandomize=True, database=None)
@given(
    st.dictionaries(
        st.text(max_size=4), st.integers() | st.floats(allow_nan=False) | st.text(max_size=4) | st.none(), max_size=4
    )
)
def test_arguments_are_known_after_a_client_has_read_and_written_them(value: dict[str, Any]) -> None:
    text = json.dumps(value)
    assert canonical(text) == canonical(json.dumps(json.loads(text), indent=2, sort_keys=True))
    assert canonical(text) == canonical(json.dumps(json.loads(text, parse_int=float)))


def test_arguments_that_are_no_json_are_themselves() -> None:
    assert canonical('{"a":') != canonical('{"a": ')
    assert canonical("[" * 100_000) != canonical("[" * 99_999)


def test_reasoning_may_be_left_out_but_not_changed() -> None:
    store = AnswerStore(9, 10_000, 60)
    store.keep("t", b"k", "So.", KeptAnswer([1, 2, 3], 1))
    kept = (KeptAnswer([1, 2, 3], 1), "So.")
    assert store.find("t", b"k", "") == store.find("t", b"k", "So.\n") == kept
    assert store.find("t", b"k", "No.") is None
    assert store.find("u", b"k", "") is None


def test_age_counts_from_the_last_use() -> None:
    now = [0.0]
    store = AnswerStore(9, 10_000, 10, lambda: now[0])
    store.keep("t", b"k", "", KeptAnswer([1]))
    for now[0] in (9.0, 18.0):
        assert store.find("t", b"k", "") is not None
    now[0] = 28.0
    assert store.find("t", b"k", "") is None
    assert (store.entries, store.size) == (0, 0)


def test_the_greediest_tenant_makes_room() -> None:
    store = AnswerStore(4, 10_000, 60)
    store.keep("small", b"0", "", KeptAnswer([1]))
    for at in range(9):
        store.keep("big", bytes([at]), "", KeptAnswer([1]))
    assert store.find("small", b"0", "") is not None
    assert [at for at in range(9) if store.find("big", bytes([at]), "")] == [6, 7, 8]
    store.keep("big", b"x", "", KeptAnswer([1] * 5000))
    assert store.find("big", b"x", "") is None, "one that is larger than the whole store is not kept"
    assert store.size < 10_000


@settings(deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 300)), max_size=60),
)
def test_bounds_hold_whatever_is_kept(steps: list[tuple[str, int, int]]) -> None:
    store = AnswerStore(5, 4000, 60)
    for tenant, name, length in steps:
        store.keep(tenant, bytes([name]), "", KeptAnswer([7] * length))
        assert store.entries <= 5
        assert 0 <= store.size <= 4000
    assert (store.entries == 0) == (store.size == 0)


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    recipe = tool_recipe()
    with Live(FakeRouter(recipe, model=LONG), recipe, ApiConfig(api_keys=("a:ka", "b:kb"))) as running:
        yield running


@pytest.fixture
def ask(live: Live) -> Callable[..., dict[str, Any]]:
    """Sends messages and gives the choice."""

    def send(messages: list[Any], key: str = "ka", **fields: Any) -> dict[str, Any]:
        body = {"model": "smollm2", "messages": messages, "tools": TOOLS, **fields}
        reply = live.http.post(CHATS, json=body, headers={"x-api-key": key})
        assert reply.status_code == 200, reply.text
        choice: dict[str, Any] = reply.json()["choices"][0]
        return choice

    return send


def question(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def result(message: dict[str, Any]) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "done"}


def rewritten(message: dict[str, Any]) -> dict[str, Any]:
    """As a client sends it that reads arguments as objects and drops what it doesn't know."""
    [call] = message["tool_calls"]
    value = json.loads(call["function"]["arguments"], parse_int=float)
    function = {"name": "f", "arguments": json.dumps(value, sort_keys=True)}
    return {"role": "assistant", "content": message["content"], "tool_calls": [{**call, "function": function}]}


@pytest.mark.parametrize("resent", [dict, rewritten])
def test_an_answer_comes_back_as_the_ids_that_were_produced(
    live: Live, ask: Callable[..., dict[str, Any]], resent: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    live.router.reset(answer=ANSWER)
    message = ask([question("One")])["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == ARGUMENTS
    first = live.router.requests[-1].prompt_ids
    ask([question("One"), resent(message), result(message)])
    second = live.router.requests[-1].prompt_ids
    produced = [*first, *live.recipe.plain_ids(ANSWER)]
    assert second[: len(produced)] == produced


def test_what_is_not_the_same_is_rendered(live: Live, ask: Callable[..., dict[str, Any]]) -> None:
    live.router.reset(answer=ANSWER)
    message = ask([question("Two")])["message"]
    produced = [*live.router.requests[-1].prompt_ids, *live.recipe.plain_ids(ANSWER)]
    changed = {**message, "content": "I saw."}
    thought = {**message, "reasoning": "Other.", "reasoning_content": "Other."}
    for history, key in (
        ([question("Two"), changed, result(message)], "ka"),
        ([question("Two"), thought, result(message)], "ka"),
        ([question("2"), message, result(message)], "ka"),
        ([question("Two"), message, result(message)], "kb"),
    ):
        ask(history, key)
        assert live.router.requests[-1].prompt_ids[: len(produced)] != produced


def test_an_answer_cut_by_a_stop_string_is_not_kept(live: Live, ask: Callable[..., dict[str, Any]]) -> None:
    live.router.reset(answer="So it is, and more.")
    message = ask([question("Three")], stop=[", and"])["message"]
    ask([question("Three"), message, question("Go on")])
    assert "and more" not in live.recipe.decode(live.router.requests[-1].prompt_ids)
    assert live.recipe.decode(live.router.requests[-1].prompt_ids).count(", and") == 0


def test_hits_and_what_is_kept_are_counted(live: Live, ask: Callable[..., dict[str, Any]]) -> None:
    live.router.reset()
    message = ask([question("Four")])["message"]
    ask([question("Four"), message, question("Go on")])
    text = live.http.get("/metrics").text
    assert 'forebay_kept_answer_lookups_total{engine="0",model_name="smollm2",result="hit"}' in text
    assert "forebay_kept_answers{" in text
