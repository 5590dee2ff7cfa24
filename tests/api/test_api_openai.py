"""OpenAI's protocol with OpenAI's own client, against a running server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from tests.api.live import Live

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
ANSWER = "The forebay holds the water back."


@pytest.fixture(scope="module")
def client(shared: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_chat_answers_with_text_usage_and_reason(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="smollm2", messages=HELLO)
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id is not None


def test_chat_stream_says_the_same(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="smollm2", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    whole = client.chat.completions.create(model="smollm2", messages=HELLO).usage
    assert chunks[-1].usage == whole


async def test_async_client_streams(shared: Live) -> None:
    async with openai.AsyncOpenAI(base_url=f"{shared.url}/v1", api_key="none") as client:
        stream = await client.chat.completions.create(model="smollm2", messages=HELLO, stream=True)
        text = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(text) == ANSWER
    assert len(text) > 5, "tokens come one by one"


def test_stop_string_is_never_shown_and_ends_the_engines_work(start: Callable[..., Live]) -> None:
    live = start()
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none") as client:
        answer = client.chat.completions.create(model="smollm2", messages=HELLO, stop=["water"])
    assert answer.choices[0].message.content == "The forebay holds the "
    assert answer.choices[0].finish_reason == "stop"
    assert live.router.aborted == [answer.id]


def test_choices_stream_side_by_side(client: openai.OpenAI) -> None:
    texts = ["", "", ""]
    for chunk in client.chat.completions.create(model="smollm2", messages=HELLO, n=3, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [f"{i} {ANSWER}" for i in range(3)]


def test_length_ends_with_length(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="smollm2", messages=HELLO, max_completion_tokens=2)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2


def test_chat_logprobs_join_to_the_text(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="smollm2", messages=HELLO, logprobs=True, top_logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert b"".join(bytes(entry.bytes or []) for entry in logprobs.content).decode() == ANSWER
    assert all(len(entry.top_logprobs) == 2 for entry in logprobs.content)


def test_cached_tokens_are_told(start: Callable[..., Live]) -> None:
    live = start(cached_tokens=16)
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none") as client:
        usage = client.chat.completions.create(model="smollm2", messages=HELLO).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 16


def test_completion_of_several_prompts_keeps_their_order(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="smollm2", prompt=["one", "two"], n=2, max_tokens=50)
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    assert [c.text for c in answer.choices] == [f"{i} {ANSWER}" for i in (0, 1, 0, 1)]


def test_completion_takes_ids(start: Callable[..., Live]) -> None:
    live = start()
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none") as client:
        client.completions.create(model="smollm2", prompt=[5, 6, 7])
        client.completions.create(model="smollm2", prompt=[[5], [6, 7]])
    assert [r.prompt_ids for r in live.router.requests] == [[5, 6, 7], [5], [6, 7]]
    assert live.router.requests[0].sampling.max_tokens == 16


def test_completion_echo_with_logprobs_covers_the_prompt(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="smollm2", prompt="Once upon", echo=True, logprobs=1, max_tokens=3)
    choice = answer.choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.tokens is not None
    assert choice.logprobs.token_logprobs is not None
    assert choice.text == "".join(choice.logprobs.tokens)
    assert choice.text.startswith("Once upon")
    assert choice.logprobs.token_logprobs[:1] == [None]
    offsets = choice.logprobs.text_offset or []
    assert [choice.text[o:].startswith(t) for o, t in zip(offsets, choice.logprobs.tokens, strict=True)] == [True] * 5


def test_completion_can_score_a_prompt_only(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="smollm2", prompt="Once upon", echo=True, max_tokens=0, extra_body={"prompt_logprobs": 2}
    )
    assert answer.choices[0].text == "Once upon"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 0
    extra = answer.choices[0].model_extra or {}
    assert extra["prompt_logprobs"][0] is None
    assert len(extra["prompt_logprobs"]) == 2


def test_streamed_completion_echoes_once(client: openai.OpenAI) -> None:
    stream = client.completions.create(model="smollm2", prompt="Once", echo=True, max_tokens=50, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "Once" + ANSWER


def test_sampling_fields_reach_the_engine(start: Callable[..., Live]) -> None:
    live = start()
    extra = {"top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1, "min_tokens": 1, "stop_token_ids": [9]}
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none") as client:
        client.chat.completions.create(
            model="smollm2",
            messages=HELLO,
            temperature=0.5,
            top_p=0.9,
            presence_penalty=0.25,
            frequency_penalty=-0.25,
            logit_bias={"42": -100},
            seed=-1,
            extra_body={**extra, "ignore_eos": True},
        )
    sampling = live.router.requests[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 7, 0.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.25, -0.25)
    assert sampling.logit_bias == {42: -100.0}
    assert sampling.stop_token_ids == (9,)
    assert sampling.seed == 2**63 - 1
    used = len(live.router.requests[0].prompt_ids)
    assert sampling.max_tokens == live.router.model.max_model_len - used


def test_models(client: openai.OpenAI, shared: Live) -> None:
    card = client.models.list().data[0]
    assert card.id == "smollm2"
    assert (card.model_extra or {})["max_model_len"] == shared.router.model.max_model_len
    assert client.models.retrieve("smollm2").id == "smollm2"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_mid_stream_failure_is_raised_by_the_client(start: Callable[..., Live]) -> None:
    from forebay.core.errors import EngineUnavailableError

    live = start(break_after=2, breaks=EngineUnavailableError("gone"))
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none") as client:
        stream = client.chat.completions.create(model="smollm2", messages=HELLO, stream=True)
        with pytest.raises(openai.APIError, match="No engine"):
            list(stream)
