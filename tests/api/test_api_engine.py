"""The whole way, HTTP to weights and back: the official clients against a server with a real engine process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from tests.api.engine_server import EngineServer
from tests.api.live import wait_for

from forebay.recipe import Recipe

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]


@pytest.fixture(scope="module")
def engine(recipe: Recipe) -> Iterator[EngineServer]:
    with EngineServer(recipe) as running:
        yield running


@pytest.fixture(scope="module")
def client(engine: EngineServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", timeout=120, max_retries=0) as made:
        yield made


def test_both_protocols_give_the_same_answer(engine: EngineServer, client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(model="smollm2", messages=QUESTION, temperature=0, max_tokens=10)
    text = chat.choices[0].message.content or ""
    assert "Paris" in text
    with (
        anthropic.Anthropic(base_url=engine.url, api_key="none", timeout=120) as other,
        other.messages.stream(
            model="smollm2", messages=QUESTION, max_tokens=10, extra_body={"temperature": 0}
        ) as stream,
    ):
        assert "".join(stream.text_stream) == text
        usage = stream.get_final_message().usage
    assert chat.usage is not None
    assert (usage.cache_read_input_tokens or 0) > 0, "the prompt's pages are there since the first answer"
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == chat.usage.prompt_tokens


def test_a_seed_repeats_a_text(client: openai.OpenAI) -> None:
    texts = [
        client.chat.completions.create(model="smollm2", messages=QUESTION, temperature=1, seed=seed, max_tokens=6)
        for seed in (7, 7, 8)
    ]
    first, again, other = (t.choices[0].message.content for t in texts)
    assert first == again != other


def test_scores_of_a_prompt_and_its_continuation(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="smollm2", prompt="The capital of France is", echo=True, logprobs=2, max_tokens=1, temperature=0
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert answer.choices[0].text == "The capital of France is Paris"
    assert logprobs.token_logprobs is not None
    assert all(p <= 0 for p in logprobs.token_logprobs[1:])
    assert logprobs.top_logprobs is not None
    assert logprobs.top_logprobs[-1][" Paris"] == max(logprobs.top_logprobs[-1].values())


def test_hang_up_frees_every_page(engine: EngineServer, client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="smollm2", prompt="Once upon a time", max_tokens=900, stream=True, extra_body={"ignore_eos": True}
    )
    for count, _ in enumerate(stream):
        if count == 3:
            break
    stream.close()
    wait_for(lambda: engine.router.in_flight == 0)
    wait_for(lambda: engine.integrity().sequences == 0, 30)
    report = engine.integrity()
    assert (report.problems, report.pages_used) == ([], 0)


def test_stop_string_across_tokens_frees_every_page(engine: EngineServer, client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="smollm2", prompt="1, 2, 3, 4,", max_tokens=200, temperature=0, stop=["8, 9"]
    )
    assert answer.choices[0].text == " 5, 6, 7, "
    assert answer.choices[0].finish_reason == "stop"
    wait_for(lambda: engine.integrity().sequences == 0, 30)
    assert engine.integrity().problems == []


def test_responses_go_on_from_the_cached_answer(client: openai.OpenAI) -> None:
    first = client.responses.create(
        model="smollm2", input="Tell me about Paris, in three long sentences.", temperature=0, max_output_tokens=64
    )
    assert "Paris" in first.output_text
    with client.responses.stream(
        model="smollm2", input="And Rome?", previous_response_id=first.id, temperature=0, max_output_tokens=8
    ) as stream:
        kinds = [event.type for event in stream]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    last = client.responses.create(
        model="smollm2",
        input=[
            {"role": "user", "content": "Tell me about Paris, in three long sentences."},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "And Berlin?"},
        ],
        max_output_tokens=1,
    )
    assert first.usage is not None
    assert last.usage is not None
    shared = first.usage.input_tokens + first.usage.output_tokens
    assert shared - 32 < last.usage.input_tokens_details.cached_tokens <= shared
