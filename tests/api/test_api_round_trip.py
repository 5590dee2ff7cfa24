"""The embedded model answers, and its answer comes back: the next prompt begins with the last prompt and the very ids
that the model produced, so the prefix cache has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from tests.api.engine_server import EngineServer
from tests.api.tool_recipe import tool_recipe

from forebay.core.messages import TokenOutput
from forebay.core.request import GenerateRequest

NUMBERS = '{"z": 1.10, "n": 12345678901234567890123, "a": 1e3, "z": 2}'
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weigh",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "maxLength": 20}, "grams": {"type": "number"}},
            "required": ["place", "grams"],
            "additionalProperties": False,
        },
    },
}
QUESTION = {"role": "user", "content": "How heavy is a loaf of bread from Ulm? It is baked in the old town, every day."}


class Seen:
    """What went to the engine and what came back."""

    def __init__(self, server: EngineServer) -> None:
        self.requests: list[GenerateRequest] = []
        self.answers: list[list[int]] = []
        generate = server.router.generate

        async def watched(request: GenerateRequest) -> Any:
            self.requests.append(request)
            self.answers.append([])
            async for output in generate(request):
                self._take(output, request)
                yield output

        server.router.generate = watched  # type: ignore[method-assign]

    def _take(self, output: TokenOutput, request: GenerateRequest) -> None:
        ids = output.token_ids
        ends = output.finish_reason is not None and ids and ids[-1] in request.sampling.stop_token_ids
        self.answers[-1] += ids[:-1] if ends else ids


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineServer]:
    with EngineServer(tool_recipe()) as running:
        yield running


@pytest.fixture(scope="module")
def seen(engine: EngineServer) -> Seen:
    return Seen(engine)


@pytest.fixture(scope="module")
def ask(engine: EngineServer) -> Iterator[Callable[..., dict[str, Any]]]:
    with httpx2.Client(base_url=engine.url, timeout=120) as http:

        def send(messages: list[Any], **fields: Any) -> dict[str, Any]:
            body = {"model": "smollm2", "messages": messages, "temperature": 0, "max_tokens": 60, **fields}
            reply = http.post("/v1/chat/completions", json=body)
            assert reply.status_code == 200, reply.text
            answer: dict[str, Any] = reply.json()
            return answer

        yield send


def check_continued(seen: Seen, answer: dict[str, Any]) -> None:
    """The last prompt goes on from the one before and its answer, and came from the cache as far as pages go."""
    before, now = seen.requests[-2:]
    known = [*before.prompt_ids, *seen.answers[-2]]
    assert now.prompt_ids[: len(known)] == known
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    # The answer's last token was never read by the model, so its page may be one short.
    assert cached >= (len(known) - 1) // 16 * 16


def test_text_comes_back(seen: Seen, ask: Callable[..., dict[str, Any]]) -> None:
    first = ask([QUESTION])["choices"][0]["message"]
    check_continued(seen, ask([QUESTION, first, {"role": "user", "content": "And a roll?"}]))


def test_a_call_that_the_model_made_comes_back(seen: Seen, ask: Callable[..., dict[str, Any]]) -> None:
    fields = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 100}
    choice = ask([QUESTION], **fields)["choices"][0]
    assert choice["finish_reason"] == "tool_calls", choice
    [call] = choice["message"]["tool_calls"]
    assert set(json.loads(call["function"]["arguments"])) == {"place", "grams"}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "750 g"}
    check_continued(seen, ask([QUESTION, choice["message"], result], tools=[TOOL]))


def test_numbers_keys_and_their_order_stay(seen: Seen, ask: Callable[..., dict[str, Any]]) -> None:
    written = f'<tool_call>\n{{"name": "weigh", "arguments": {NUMBERS}}}\n</tool_call>'
    tools = [{"type": "function", "function": {"name": "weigh"}}]
    choice = ask([QUESTION], tools=tools, structured_outputs={"choice": [written]}, max_tokens=100)["choices"][0]
    [call] = choice["message"]["tool_calls"]
    assert call["function"]["arguments"] == NUMBERS
    call["function"]["arguments"] = json.dumps(json.loads(NUMBERS, parse_int=float))
    result = {"role": "tool", "tool_call_id": call["id"], "content": "750 g"}
    check_continued(seen, ask([QUESTION, choice["message"], result], tools=tools))
