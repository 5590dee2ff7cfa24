"""Runs the app with uvicorn: the socket, the limits of the HTTP layer, an orderly end. It owns no engine."""

from __future__ import annotations

import logging
import socket

import uvicorn
from fastapi import FastAPI

from forebay.api.config import ApiConfig
from forebay.core.errors import ConfigError

log = logging.getLogger(__name__)

_BACKLOG = 2048


def bind(config: ApiConfig) -> socket.socket:
    """A listening address of its own, before anything slow starts. Raises ConfigError when it can't be had."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host.strip("[]"), config.port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"Can't listen on {config.host}, port {config.port}: {reason}.") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Where clients reach a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(app: FastAPI, config: ApiConfig) -> uvicorn.Server:
    """A server that the caller runs: `await server.serve(sockets=[listener])`.

    Ctrl-C or SIGTERM, or `should_exit` set to True, lets running requests finish for `shutdown_grace_s` and then
    cancels them, which aborts their generations.
    """
    options = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=max(1, round(config.shutdown_grace_s)),
        h11_max_incomplete_event_size=64 * 1024,
    )
    return uvicorn.Server(options)
