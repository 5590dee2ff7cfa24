"""`forebay serve`: its options. What runs then is in `serving`.

Ctrl-C or SIGTERM stop the server within seconds: running requests get a short time to finish, then their clients are
told. A second Ctrl-C does not wait for them, a third ends this process where it stands. When the engine dies, the
server says so, answers /health with 503 until it is down, and ends with exit code 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from forebay.cli.cache_options import CACHE_DEFAULTS, CacheOptions
from forebay.cli.console import binary_size
from forebay.cli.options import (
    DEFAULT_MODEL,
    ENGINE_DEFAULTS,
    SCHEDULING_DEFAULTS,
    EngineOptions,
    Flag,
    NotNegative,
    Port,
    Positive,
    SchedulingOptions,
    Seconds,
    SecondsOrZero,
    Size,
    Texts,
)

LogLevel = Literal["debug", "info", "warning", "error"]


@Parameter(name="*", group="HTTP and access")
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Where the server listens and who may use it."""

    host: str = "127.0.0.1"
    """Address to listen on; any but a loopback address needs keys or --allow-unauthenticated."""
    port: Port = 8000
    """TCP port to listen on; 0 takes a free one."""
    api_key: Texts = ()
    """Key that clients must send, or TENANT:KEY; may be given several times. A key alone belongs to the tenant
    "default". Others on this machine can see the command line: prefer the environment variable or --api-key-file."""
    api_key_file: Path | None = None
    """TOML file with [[key]] tables: key, and optionally tenant, priority, ceiling, strict_markers, retention (class of
    requests that name none), and the tenant's host_quota and disk_quota, such as "2GiB"."""
    allow_unauthenticated: Flag = False
    """Listen on a public address without keys: anyone who reaches the port may use the model."""
    served_model_name: Texts = ()
    """Name of the model for clients, instead of its own; may be given several times, the first is shown in answers."""
    strict_markers: Flag = False
    """Refuse texts that spell a control token of the model or a delimiter of its chat template (422), instead of taking
    them as the plain text that they are. Keys (in the file) and requests can also ask for it one by one."""
    max_body_size: Annotated[Size, Parameter(show_default=binary_size)] = 32 * 1024 * 1024
    """Largest request body, such as 32MiB; larger ones are refused with 413."""
    max_messages: Positive = 4096
    """Most messages in one conversation."""
    kept_answers: NotNegative = 16_384
    """Most answers whose token ids are kept, so that they are found in the prefix cache when clients send them back."""
    kept_answers_size: Annotated[Size, Parameter(show_default=binary_size)] = 64 * 1024 * 1024
    """Most memory for kept answers."""
    kept_answers_ttl: Seconds = 86_400.0
    """Seconds after its last use for which an answer is kept."""
    stored_responses: Positive = 4096
    """Most responses of /v1/responses that are kept for later requests."""
    stored_responses_size: Annotated[Size, Parameter(show_default=binary_size)] = 256 * 1024 * 1024
    """Most memory for kept responses, counted as JSON; the oldest go first."""
    stored_responses_ttl: Seconds = 86_400.0
    """Seconds after its last use for which a response is kept."""
    request_timeout: Seconds = 3600.0
    """Seconds after which an unfinished request is ended."""
    shutdown_grace: SecondsOrZero = 1.0
    """Seconds that running requests get to finish when the server is told to stop."""
    log_level: LogLevel = "warning"
    """What the server logs to stderr."""
    log_format: Literal["text", "json"] = "text"
    """How a log line looks."""


_HTTP = HttpOptions()


def serve(
    model: str = DEFAULT_MODEL,
    *,
    http: HttpOptions = _HTTP,
    engine: EngineOptions = ENGINE_DEFAULTS,
    scheduling: SchedulingOptions = SCHEDULING_DEFAULTS,
    cache: CacheOptions = CACHE_DEFAULTS,
) -> int:
    """Serve a model behind the OpenAI and Anthropic APIs.

    Parameters
    ----------
    model
        smollm2 (the embedded one), a .gguf file, a Hugging Face folder, or a hub name.
    """
    from forebay.cli.serving import run_server

    return run_server(model, http, engine, scheduling, cache)
