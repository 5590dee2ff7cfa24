"""What the tests of the Responses protocol share: a server with a model that reasons and calls tools; its client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import openai
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter
from tests.api.fakes import FakeRouter
from tests.api.live import Live, events
from tests.api.tool_recipe import tool_recipe

from forebay.api import ApiConfig

EVENT: Final[TypeAdapter[Any]] = TypeAdapter(ResponseStreamEvent)
WEATHER: Final[Any] = {
    "type": "function",
    "name": "weather",
    "description": "Today's weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
THOUGHT: Final = "<think>\nThey greet.\n</think>\n\nHello!"
CALLS: Final = (
    'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "at": 1.10}}\n</tool_call>\n'
    '<tool_call>\n{"name": "shell", "arguments": {"input": "ls\\n"}}\n</tool_call>'
)
SHELL: Final[Any] = {"type": "custom", "name": "shell", "description": "Runs a line"}


@contextmanager
def serving(config: ApiConfig | None = None, **router: Any) -> Iterator[Live]:
    """A server whose fake engine has these fields."""
    recipe = tool_recipe()
    with Live(FakeRouter(recipe, **router), recipe, config or ApiConfig()) as live:
        yield live


def client_of(live: Live, key: str = "none") -> openai.OpenAI:
    """The official client."""
    return openai.OpenAI(base_url=f"{live.url}/v1", api_key=key, max_retries=0, timeout=60)


def streamed(live: Live, **body: Any) -> list[dict[str, Any]]:
    """The events of a stream, each checked against the official types, and their numbers."""
    answer = live.http.post("/v1/responses", json={"model": "smollm2", "stream": True, **body})
    assert answer.status_code == 200, answer.text
    return checked(answer.text)


def checked(text: str, start: int = 0) -> list[dict[str, Any]]:
    """The events of a stream's text."""
    found = []
    for number, (name, data) in enumerate(events(text), start):
        value = EVENT.validate_json(data).to_dict()
        assert (value["type"], value["sequence_number"]) == (name, number)
        found.append(value)
    return found
