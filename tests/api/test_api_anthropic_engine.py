"""Messages on the embedded model, with the official client: the turns of a tool loop find each other in the cache."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, ToolUseBlock
from tests.api.engine_server import EngineServer

from forebay.core.grammar import GrammarSpec
from forebay.core.request import GenerateRequest, SamplingParams
from forebay.recipe import Recipe

TOOL: Any = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "strict": True,
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def engine(recipe: Recipe) -> Iterator[EngineServer]:
    with EngineServer(recipe) as running:
        yield running


@pytest.fixture(scope="module")
def client(engine: EngineServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=engine.url, api_key="none", timeout=120, max_retries=0) as made:
        yield made


def ask(client: anthropic.Anthropic, number: int, messages: list[Any], **fields: Any) -> Message:
    """One turn, streamed; its billing line differs from that of every other turn."""
    line = f"x-anthropic-billing-header: cc_version=2.1.{number}; cch={number:05};"
    instructions: Any = [{"type": "text", "text": line}, {"type": "text", "text": "Use the tools that you have."}]
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 60, "messages": messages, "tools": [TOOL]} | fields
    with client.messages.stream(system=instructions, extra_body={"temperature": 0}, **asked) as stream:
        message = stream.get_final_message()
    counting = {name: asked[name] for name in ("model", "messages", "tools")}
    counted = client.messages.count_tokens(system=instructions, **counting)
    assert counted.input_tokens == message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)
    return message


def test_a_tool_loop_reads_its_past_from_the_cache(client: anthropic.Anthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "How is the weather in Paris?"}]
    first = ask(client, 1, messages, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    [call] = first.content
    assert isinstance(call, ToolUseBlock)
    assert (call.name, set(call.input), first.stop_reason) == ("get_weather", {"city", "unit"}, "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees, rain"}
    messages += [first.to_param(), {"role": "user", "content": [result]}]
    second = ask(client, 2, messages)
    past = first.usage.input_tokens + first.usage.output_tokens
    read = second.usage.cache_read_input_tokens or 0
    assert past - 32 < read <= past, "all but the last pages of the first turn and its answer"
    messages += [second.to_param(), {"role": "user", "content": "Thanks."}]
    third = ask(client, 3, messages)
    assert (third.usage.cache_read_input_tokens or 0) > read


def test_the_engine_ends_reasoning_at_its_budget(engine: EngineServer, recipe: Recipe) -> None:
    """This model has no reasoning of its own, so another of its control tokens stands for the end of it."""
    end = recipe.vocabulary.control_id("<repo_name>")
    grammar = GrammarSpec("regex", " (yes|no)", after=end, budget=5)
    stop = recipe.stop_token_ids
    params = SamplingParams(max_tokens=40, temperature=0, stop_token_ids=stop, grammar=grammar)
    request = GenerateRequest(id="b", prompt_ids=recipe.plain_ids("Once upon a time"), sampling=params)

    async def ids() -> list[int]:
        return [token async for output in engine.router.generate(request) for token in output.token_ids]

    said = asyncio.run_coroutine_threadsafe(ids(), engine.loop).result(60)
    assert said.index(end) == 5
    assert recipe.decode(said[6:]).strip() in ("yes", "no")
    assert said[-1] in stop
