"""Strict markers: who can ask for them, what is refused, and how each protocol says where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.api.live import Live

from forebay.api import ApiConfig
from forebay.api.auth import load_key_file
from forebay.core.errors import ConfigError

CHATS = "/v1/chat/completions"
TYPED = "What does <|im_end|> mean?"
ASK: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TYPED}]
CHAT: dict[str, Any] = {"model": "smollm2", "messages": ASK}
STRICT = {"x-forebay-strict-markers": "1"}
PLACE = {"pointer": "/messages/1/content", "offset": 10, "marker": "<|im_end|>"}


def test_markers_are_text_unless_they_are_refused(shared: Live) -> None:
    assert shared.http.post(CHATS, json=CHAT).status_code == 200
    for value in ("0", "false", ""):
        headers = {"x-forebay-strict-markers": value}
        assert shared.http.post(CHATS, json=CHAT, headers=headers).status_code == 200


def test_a_request_can_ask_by_field_or_by_header(shared: Live) -> None:
    for body, headers in (({**CHAT, "strict_markers": True}, {}), (CHAT, STRICT)):
        reply = shared.http.post(CHATS, json=body, headers=headers)
        assert reply.status_code == 422
        error = reply.json()["error"]
        assert {name: error[name] for name in PLACE} == PLACE
        assert (error["param"], error["type"]) == ("messages.1.content", "invalid_request_error")


def test_no_work_is_done_for_what_is_refused(start: Callable[..., Live]) -> None:
    live = start()
    assert live.http.post(CHATS, json=CHAT, headers=STRICT).status_code == 422
    assert live.router.requests == []


def test_the_clients_own_error_has_the_place(shared: Live) -> None:
    with (
        openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", default_headers=STRICT) as client,
        pytest.raises(openai.UnprocessableEntityError) as caught,
    ):
        client.chat.completions.create(model="smollm2", messages=ASK)
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["pointer"] == PLACE["pointer"]


def test_messages_say_it_in_their_own_shape(shared: Live) -> None:
    body = {"model": "smollm2", "max_tokens": 9, "system": "Be brief.", "messages": ASK[1:]}
    reply = shared.http.post("/v1/messages", json=body, headers=STRICT)
    assert reply.status_code == 422
    answer = reply.json()
    assert (answer["type"], answer["error"]["type"]) == ("error", "invalid_request_error")
    assert {name: answer["error"][name] for name in PLACE} == {**PLACE, "pointer": "/messages/0/content"}


def test_raw_prompts_too(shared: Live) -> None:
    for prompt, pointer in ((TYPED, "/prompt"), (["a", TYPED], "/prompt/1")):
        body = {"model": "smollm2", "prompt": prompt}
        assert shared.http.post("/v1/completions", json=body).status_code == 200
        reply = shared.http.post("/v1/completions", json={**body, "strict_markers": True})
        assert (reply.status_code, reply.json()["error"]["pointer"]) == (422, pointer)
    ids = {"model": "smollm2", "prompt": [1, 2], "strict_markers": True}
    assert shared.http.post("/v1/completions", json=ids).status_code == 200


def test_the_server_and_a_key_decide_and_no_request_can_undo_it(start: Callable[..., Live], tmp_path: Path) -> None:
    loose = {"x-forebay-strict-markers": "0"}
    everyone = start(ApiConfig(strict_markers=True))
    assert everyone.http.post(CHATS, json={**CHAT, "strict_markers": False}, headers=loose).status_code == 422
    file = tmp_path / "keys.toml"
    file.write_text('[[key]]\nkey = "s"\nstrict_markers = true\n[[key]]\nkey = "l"\n')
    some = start(ApiConfig(api_key_file=file))
    for key, status in (("s", 422), ("l", 200)):
        reply = some.http.post(CHATS, json=CHAT, headers={**loose, "x-api-key": key})
        assert reply.status_code == status


def test_a_key_file_that_is_unclear_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('[[key]]\nkey = "s"\nstrict_markers = "yes"\n')
    with pytest.raises(ConfigError, match="strict_markers"):
        load_key_file(file)
