"""Responses in the background: they go on without their client, are read from any event on, cancelled and ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from tests.api.live import Live, wait_for
from tests.api.responses import checked, client_of, serving

from forebay.api import ApiConfig
from forebay.api.errors import FaultError
from forebay.api.responses_jobs import Jobs
from forebay.core.errors import EngineUnavailableError, OverloadedError

MODEL_NAME = "smollm2"


@pytest.fixture(scope="module")
def running() -> Iterator[Live]:
    with serving(ApiConfig(background_responses=2, keepalive_s=0.02)) as live:
        yield live


def begin(client: openai.OpenAI) -> str:
    """The id of a response that is being made."""
    made = client.responses.create(model=MODEL_NAME, input="Hi", background=True)
    assert (made.status, made.background, made.usage) == ("queued", True, None)
    return made.id


def state(client: openai.OpenAI, response_id: str) -> str | None:
    return client.responses.retrieve(response_id).status


def go_on(live: Live) -> None:
    """Let the silent engine go on."""
    wait_for(lambda: live.router.release)
    assert live.router.release is not None
    live.loop.call_soon_threadsafe(live.router.release.set)


def test_it_is_made_without_its_client(live: Live, client: openai.OpenAI) -> None:
    live.router.hold_after = 2
    made = begin(client)
    wait_for(lambda: state(client, made) == "in_progress")
    with pytest.raises(openai.BadRequestError, match="is in_progress"):
        client.responses.create(model=MODEL_NAME, input="x", previous_response_id=made)
    go_on(live)
    wait_for(lambda: state(client, made) == "completed")
    answer = client.responses.retrieve(made)
    assert answer.output_text == "The forebay holds the water back."
    assert answer.usage is not None
    assert client.responses.cancel(made).status == "completed", "what is complete stays so"


def test_it_is_cancelled(live: Live, client: openai.OpenAI) -> None:
    live.router.hold_after = 3
    made = begin(client)
    wait_for(lambda: live.router.release)
    cancelled = client.responses.cancel(made)
    assert cancelled.status == "cancelled"
    assert cancelled.output[0].status == "incomplete"  # type: ignore[union-attr]
    assert live.router.aborted == [made]
    assert client.responses.cancel(made).status == "cancelled"


def test_deleting_it_ends_it(live: Live, client: openai.OpenAI) -> None:
    live.router.hold_after = 1
    made = begin(client)
    wait_for(lambda: live.router.release)
    client.responses.delete(made)
    wait_for(lambda: live.router.aborted == [made])
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made)


def test_only_so_many_at_a_time(live: Live, client: openai.OpenAI) -> None:
    live.router.hold_after = 0
    two = [begin(client), begin(client)]
    with pytest.raises(openai.RateLimitError, match="in the background"):
        client.responses.create(model=MODEL_NAME, input="Hi", background=True)
    for made in two:
        client.responses.cancel(made)
    begin(client)


def test_what_the_engine_refuses_fails(live: Live, client: openai.OpenAI) -> None:
    for refuse, code in (
        (OverloadedError("full"), "rate_limit_exceeded"),
        (EngineUnavailableError("x"), "server_error"),
    ):
        live.router.refuse = refuse
        made = begin(client)
        wait_for(lambda made=made: state(client, made) == "failed")  # type: ignore[misc]
        error = client.responses.retrieve(made).error
        assert error is not None
        assert error.code == code


def test_its_events_are_read_from_any_point(live: Live, client: openai.OpenAI) -> None:
    live.router.hold_after = 3
    with client.responses.create(model=MODEL_NAME, input="Hi", background=True, stream=True) as stream:
        seen = [event for event, _ in zip(stream, range(6), strict=False)]
    assert [event.type for event in seen[:3]] == ["response.created", "response.queued", "response.in_progress"]
    first: Any = seen[0]
    made = first.response.id
    go_on(live)
    wait_for(lambda: state(client, made) == "completed")
    rest = live.http.get(f"/v1/responses/{made}?stream=true&starting_after=5")
    events = checked(rest.text, 6)
    assert events[-1]["type"] == "response.completed"
    whole = checked(live.http.get(f"/v1/responses/{made}?stream=true").text)
    assert whole[6:] == events
    assert checked(live.http.get(f"/v1/responses/{made}?stream=true&starting_after=9999").text, 9999) == []
    with client.responses.stream(response_id=made, starting_after=3) as again:
        assert again.get_final_response().output_text == "The forebay holds the water back."


def test_readers_of_one_that_is_cancelled_see_its_end(live: Live, client: openai.OpenAI) -> None:
    live.router.hold_after = 3
    events: list[Any] = []
    for event in client.responses.create(model=MODEL_NAME, input="Hi", background=True, stream=True):
        events.append(event)
        if event.type == "response.output_text.delta" and len(events) == 6:
            client.responses.cancel(events[0].response.id)
    assert (events[-1].type, events[-1].response.status) == ("response.incomplete", "cancelled")


def test_only_what_was_streamed_in_the_background_is_streamed_again(live: Live, client: openai.OpenAI) -> None:
    plain = client.responses.create(model=MODEL_NAME, input="Hi").id
    for made in (plain, begin(client)):
        with pytest.raises(openai.BadRequestError, match="can be streamed again"):
            client.responses.retrieve(made, stream=True)
    with pytest.raises(openai.BadRequestError, match="can be cancelled"):
        client.responses.cancel(plain)


def test_a_server_that_stops_ends_what_it_makes() -> None:
    with serving(ApiConfig(shutdown_grace_s=0), hold_after=2) as live, client_of(live) as client:
        begin(client)
        wait_for(lambda: live.router.release)
        live.stop()
        assert len(live.router.aborted) == 1


def test_readers_of_a_server_that_stops_are_told() -> None:
    with serving(ApiConfig(shutdown_grace_s=0), hold_after=2) as live:
        body = {"model": MODEL_NAME, "input": "Hi", "background": True, "stream": True}
        with live.http.stream("POST", "/v1/responses", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            wait_for(lambda: live.router.release)
            live.stop()
            rest = list(lines)
    assert any("The server is stopping" in line for line in rest)
    assert len(live.router.aborted) == 1


def test_a_server_may_refuse_it() -> None:
    with (
        serving(ApiConfig(background_responses=0)) as live,
        client_of(live) as client,
        pytest.raises(openai.BadRequestError, match="makes no responses in the background"),
    ):
        client.responses.create(model=MODEL_NAME, input="Hi", background=True)


async def test_jobs_need_an_owner() -> None:
    jobs = Jobs(1)
    with pytest.raises(FaultError, match="background"):
        jobs.check()
    ended = asyncio.Event()

    async def job() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async with jobs.running():
        jobs.check()
        jobs.start(job())
        with pytest.raises(OverloadedError):
            jobs.check()
        await asyncio.sleep(0)
    assert ended.is_set()
    late = job()
    with pytest.raises(FaultError, match="stopping"):
        jobs.start(late)
