"""Items → messages: what belongs to one answer comes together, and everything else stays where it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from tests.recipe.families import property_test

from forebay.api.responses_items import InputItem, Item
from forebay.api.responses_prompt import Placed, prompt_of
from forebay.api.responses_reasoning import pack
from forebay.core.errors import InvalidRequestError
from forebay.recipe import Message, ToolCall

ITEM: TypeAdapter[Item] = TypeAdapter(InputItem)


def messages(*items: dict[str, Any], instructions: str | None = None) -> list[Message]:
    """The messages that these items make."""
    placed = [Placed(ITEM.validate_python(item), ("input", index)) for index, item in enumerate(items)]
    return prompt_of(instructions, placed).messages


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def reasoned(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def called(call_id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def answered(call_id: str, output: Any = "ok") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def test_one_answer_becomes_one_message() -> None:
    made = messages(
        said("user", "u"),
        reasoned("r"),
        said("assistant", "before"),
        {**called("1", arguments='{"x": 1.10}'), "async": False, "status": "completed"},
        {"type": "custom_tool_call", "call_id": "2", "name": "sh", "input": 'a"b'},
        said("assistant", " and after"),
        answered("1", [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]),
        {"type": "custom_tool_call_output", "call_id": "2", "output": "x"},
        reasoned("again"),
        said("assistant", "Done."),
    )
    assert [message.role for message in made] == ["user", "assistant", "tool", "tool", "assistant"]
    answer = made[1]
    assert (answer.reasoning, answer.content) == ("r", "before\n and after")
    assert answer.calls == [ToolCall("1", "f", '{"x": 1.10}'), ToolCall("2", "sh", '{"input": "a\\"b"}')]
    assert (made[2].content, made[2].call_id, made[2].name) == ("one\ntwo", "1", "f")
    assert (made[3].call_id, made[3].name) == ("2", "sh")
    assert (made[4].reasoning, made[4].content) == ("again", "Done.")


def test_instructions_and_what_the_developer_says_first_are_one_system_message() -> None:
    made = messages(said("developer", "d"), said("system", "s"), said("user", "u"), instructions="i")
    assert [(message.role, message.content) for message in made] == [("system", "i\nd\ns"), ("user", "u")]
    later = messages(said("user", "u"), said("developer", "d"), said("user", "v"))
    assert [message.role for message in later] == ["user", "system", "user"]


def test_neighbours_of_one_kind_start_a_new_line() -> None:
    made = messages(said("assistant", "a"), said("assistant", "b"), reasoned("r"), reasoned("s"))
    assert [(message.content, message.reasoning) for message in made] == [("a\nb", "r\ns")]


def test_users_stay_apart() -> None:
    assert [message.content for message in messages(said("user", "a"), said("user", "b"))] == ["a", "b"]


@property_test
@given(st.text(st.characters(codec="utf-8")))
def test_packed_reasoning_comes_back(text: str) -> None:
    item = {"type": "reasoning", "summary": [], "encrypted_content": pack(text)}
    assert messages(item)[0].reasoning == text


@pytest.mark.parametrize("packed", ["gAAAAA", "forebay.1.%%%", "forebay.1._w==", "forebay.1.a"])
def test_reasoning_that_another_server_packed_is_refused(packed: str) -> None:
    with pytest.raises(InvalidRequestError, match="was not made by this server") as refused:
        messages(said("user", "u"), {"type": "reasoning", "summary": [], "encrypted_content": packed})
    assert refused.value.param == "input.1.encrypted_content"


KINDS = st.sampled_from(["user", "developer", "assistant", "reasoning", "call", "output"])


@property_test
@given(st.lists(KINDS, max_size=12), st.booleans())
def test_every_message_names_the_item_that_it_begins_with(kinds: list[str], instructed: bool) -> None:
    make: dict[str, Any] = {"reasoning": reasoned, "call": called, "output": answered}
    items = [make[kind](f"t{at}") if kind in make else said(kind, f"t{at}") for at, kind in enumerate(kinds)]
    placed = [Placed(ITEM.validate_python(item), ("input", at)) for at, item in enumerate(items)]
    prompt = prompt_of("t" if instructed else None, placed)
    assert len(prompt.places) == len(prompt.messages)
    indexes = [places.base[1] for places in prompt.places if places.base != ("instructions",)]
    assert indexes == sorted(set(indexes))
    joined = "".join(
        message.content + message.reasoning + message.call_id + "".join(call.id for call in message.calls)
        for message in prompt.messages
    )
    for at, kind in enumerate(kinds):
        assert kind == "output" or f"t{at}" in joined


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "role": "tool", "content": "x"},
        {"role": "user"},
        {"type": "web_search_call", "id": "x"},
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": 3},
        {"id": ""},
        "text",
        None,
    ],
)
def test_what_is_no_item_is_refused(item: object) -> None:
    with pytest.raises(ValidationError):
        ITEM.validate_python(item)
