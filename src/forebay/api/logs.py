"""The process's logs: one line per event on stderr, as key=value text or JSON, with the request's id.

Modules log with the standard library and put what belongs to an event into `extra`; lines are shaped here.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

from forebay.api.request_id import current_request_id

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Time, level, logger, request id, message, and all that came as `extra` and is not None."""
    when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    fields: dict[str, Any] = {"time": when, "level": record.levelname.lower(), "logger": record.name}
    if (request_id := current_request_id.get()) != "-":
        fields["request_id"] = request_id
    fields["event"] = record.getMessage()
    fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD and value is not None}
    return fields


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; a traceback in its own field."""
        fields = _fields(record)
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


class TextFormatter(logging.Formatter):
    """time level event key=value …; a traceback follows on its own lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text. Values with spaces or control characters are quoted, so that one event stays one line."""
        fields = _fields(record)
        head = f"{fields.pop('time')} {fields.pop('level'):<7} {_plain(fields.pop('event'))}"
        fields.pop("logger")
        line = " ".join([head, *(f"{key}={_value(value)}" for key, value in fields.items())])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _plain(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)


def _value(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and not set(text) & set(' "=') and text else json.dumps(text)


def configure_logs(level: str = "info", style: Literal["text", "json"] = "text") -> None:
    """Send all logs of the process to stderr in one style. Libraries speak from WARNING up, Forebay from `level` up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("forebay").setLevel(level.upper())
