"""Log lines: one event is one line, with the request's id, in text and in JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest
from tests.api.live import Live

from forebay.api.logs import JsonFormatter, TextFormatter
from forebay.api.request_id import current_request_id


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


def test_only_failures_are_logged(start: Callable[..., Live], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    live = start()
    chat = {"model": "smollm2", "messages": [{"role": "user", "content": "my secret text"}]}
    assert live.http.post("/v1/chat/completions", json=chat).status_code == 200
    assert [r for r in caplog.records if r.name.startswith("forebay")] == []
    live.http.post("/v1/chat/completions", json={**chat, "n": 99})
    (failure,) = [r for r in caplog.records if r.name.startswith("forebay")]
    assert (failure.getMessage(), failure.levelno) == ("request failed", logging.WARNING)
    assert "secret" not in json.dumps(vars(failure), default=str)
