"""Every string that the recipe may object to is found again in the request, where its place says."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.families import property_test

from forebay.api.asking import Path
from forebay.api.config import ApiConfig
from forebay.api.responses_asking import ask_of
from forebay.api.responses_history import inputs_of
from forebay.api.responses_store import ResponseStore
from forebay.api.responses_truncation import from_message, turns
from forebay.api.responses_types import ResponsesRequest
from forebay.recipe.strings import client_strings

WORDS = st.text(st.sampled_from("abcdefgh"), min_size=1, max_size=8)
CONTENTS = WORDS | st.lists(WORDS.map(lambda text: {"type": "input_text", "text": text}), min_size=1, max_size=3)


Strategy = st.SearchStrategy[Any]


def kind(type_: str, **fields: Strategy) -> Strategy:
    """An object of that type."""
    return st.fixed_dictionaries({"type": st.just(type_), **fields})


THOUGHTS = st.lists(kind("reasoning_text", text=WORDS), min_size=1, max_size=1)
ITEMS: Strategy = (
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system", "developer"]), "content": CONTENTS})
    | kind("function_call", call_id=WORDS, name=WORDS, arguments=WORDS)
    | kind("custom_tool_call", call_id=WORDS, name=WORDS, input=WORDS)
    | kind("function_call_output", call_id=WORDS, output=CONTENTS)
    | kind("reasoning", summary=st.just([]), content=THOUGHTS)
)
SCHEMAS = st.dictionaries(WORDS | st.just("function"), WORDS, max_size=2)
TOOLS: Strategy = kind("function", name=WORDS, description=WORDS, parameters=SCHEMAS) | kind(
    "custom", name=WORDS, description=WORDS
)
OFFERS: Strategy = st.lists(TOOLS, max_size=2, unique_by=lambda tool: tool["name"])
INPUTS: Strategy = WORDS | st.lists(ITEMS, min_size=1, max_size=8)
BODIES: Strategy = st.fixed_dictionaries(
    {"model": st.just("m"), "input": INPUTS}, optional={"instructions": WORDS, "tools": OFFERS}
)


def found(body: dict[str, Any], place: Path) -> str:
    """What stands there, as text."""
    value: Any = body
    for step in place:
        value = value[step]
    return value if isinstance(value, str) else json.dumps(value)


@property_test
@given(BODIES)
def test_every_string_is_where_its_place_says(body: dict[str, Any]) -> None:
    request = ResponsesRequest.model_validate(body)
    ask = ask_of(request, inputs_of(request, ResponseStore(1, 1, 1.0), "t"), ApiConfig())
    for path, text in client_strings(ask.conversation):
        if not text or path[-2:] == ("parameters",) or _added(body, path):
            continue
        place = ask.locate(path)
        if path[-1] == "reasoning_content":  # one string of several items' texts; the first of them is named
            assert found(body, (*place, "type")) == "reasoning"
            continue
        for part in text.split("\n"):
            said = json.loads(part)["input"] if part.startswith('{"input"') else part
            assert said in found(body, place) or said == place[-1], (path, place)  # a key has its value's place


def _added(body: dict[str, Any], path: Path) -> bool:
    """Whether this server put it there: the schema of a custom tool, or a name that only the call has."""
    if path[0] == "tools":
        return "parameters" in path and body["tools"][path[1]]["type"] == "custom"
    return path[2:] == ("name",)


@property_test
@given(st.lists(ITEMS, min_size=1, max_size=12))
def test_what_is_left_out_does_not_shift_places(items: list[dict[str, Any]]) -> None:
    request = ResponsesRequest.model_validate({"model": "m", "input": items})
    ask = ask_of(request, inputs_of(request, ResponseStore(1, 1, 1.0), "t"), ApiConfig())
    whole = ask.conversation.messages
    for start in turns(whole):
        part = from_message(ask, start)
        left = part.conversation.messages
        lead = len(left) - (len(whole) - start)
        assert left == [*whole[:lead], *whole[start:]]
        assert all(message.role == "system" for message in left[:lead])
        for index in range(len(left)):
            original = index if index < lead else index + len(whole) - len(left)
            assert part.locate(("messages", index)) == ask.locate(("messages", original))
