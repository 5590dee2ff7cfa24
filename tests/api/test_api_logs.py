"""Log lines: one event is one line, with the request's id, in text and in JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest
from tests.api.live import Live

from forebay.api.logs import JsonFormatter, TextFormatter
from forebay.api.request_id import current_request_id

CHAT = {"model": "smollm2", "messages": [{"role": "user", "content": "my secret text"}]}


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("forebay.x").makeRecord(
        "forebay.x", logging.INFO, "x.py", 1, message, (), None, extra=dict(extra)
    )
    made.created = 0.0
    return made


def test_json_line() -> None:
    token = current_request_id.set("req_1")
    try:
        line = JsonFormatter().format(record("it failed", param=None, reason='a "b"\nc'))
    finally:
        current_request_id.reset(token)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.000+00:00",
        "level": "info",
        "logger": "forebay.x",
        "request_id": "req_1",
        "event": "it failed",
        "reason": 'a "b"\nc',
    }


def test_text_line_can_not_be_forged() -> None:
    line = TextFormatter().format(record("it failed", reason="x\nERROR all is lost", kind="plain"))
    assert line == ('1970-01-01T00:00:00.000+00:00 info    it failed reason="x\\nERROR all is lost" kind=plain')


def test_only_failures_are_logged_by_default(start: Callable[..., Live], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    live = start()
    assert live.http.post("/v1/chat/completions", json=CHAT).status_code == 200
    assert [r for r in caplog.records if r.name.startswith("forebay")] == []
    live.http.post("/v1/chat/completions", json={**CHAT, "n": 99})
    (failure,) = [r for r in caplog.records if r.name.startswith("forebay")]
    assert (failure.getMessage(), failure.levelno) == ("request failed", logging.WARNING)
    assert "secret" not in json.dumps(vars(failure), default=str)


def test_at_info_each_request_leaves_a_line_without_its_content(
    start: Callable[..., Live], caplog: pytest.LogCaptureFixture
) -> None:
    live = start()
    caplog.set_level(logging.INFO)
    assert live.http.post("/v1/chat/completions", json=CHAT).status_code == 200
    (line,) = [r for r in caplog.records if r.name == "forebay.api.access"]
    fields = vars(line)
    assert (line.getMessage(), line.levelno) == ("request answered", logging.INFO)
    assert (fields["method"], fields["route"], fields["status"]) == ("POST", "/v1/chat/completions", 200)
    assert fields["seconds"] >= 0
    assert "secret" not in json.dumps(fields, default=str)
