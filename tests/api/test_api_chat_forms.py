"""Forms of chat completions with OpenAI's own client: parsed answers, and what reaches the engine."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel
from tests.api.live import Live
from tests.api.test_api_chat_tools import ASK, CHATS, client, live, sent

__all__ = ["client", "live"]


class Weather(BaseModel):
    """What the parsed answers hold."""

    place: str
    sky: Literal["clear", "cloudy"]


def test_the_clients_parser_gets_objects(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = '{"place": "Ulm", "sky": "clear"}'
    answer = client.chat.completions.parse(model="smollm2", messages=ASK, response_format=Weather)
    assert answer.choices[0].message.parsed == Weather(place="Ulm", sky="clear")
    grammar = sent(live).sampling.grammar
    assert grammar is not None
    assert (grammar.kind, json.loads(grammar.text)["properties"]["sky"]["enum"]) == ("json_schema", ["clear", "cloudy"])


def test_the_clients_parser_gets_arguments(live: Live, client: openai.OpenAI) -> None:
    live.router.answer = '<tool_call>\n{"name": "Weather", "arguments": {"place": "Ulm", "sky": "clear"}}\n</tool_call>'
    tool = openai.pydantic_function_tool(Weather)
    answer = client.chat.completions.parse(model="smollm2", messages=ASK, tools=[tool], tool_choice="required")
    [call] = answer.choices[0].message.tool_calls or []
    assert call.function.parsed_arguments == Weather(place="Ulm", sky="clear")


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ({"response_format": {"type": "json_object"}}, "json_object"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "any"}}}, "json_object"),
        ({"structured_outputs": {"json": '{"type": "object"}'}}, "json_schema"),
        ({"structured_outputs": {"json_object": True}}, "json_object"),
        ({"structured_outputs": {"regex": "[ab]+"}}, "regex"),
        ({"structured_outputs": {"choice": ["yes", 'n"o']}}, "lark"),
        ({"structured_outputs": {"grammar": 'start: "a"+'}}, "lark"),
    ],
)
def test_forms_reach_the_engine(live: Live, form: dict[str, Any], kind: str) -> None:
    live.router.reset()
    prompts: list[tuple[str, dict[str, Any]]] = [(CHATS, {"messages": ASK}), ("/v1/completions", {"prompt": "a"})]
    for path, prompt in prompts:
        assert live.http.post(path, json={"model": "smollm2", **prompt, **form}).status_code == 200
        grammar = sent(live).sampling.grammar
        assert grammar is not None
        assert grammar.kind == kind
