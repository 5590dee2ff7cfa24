"""The app under uvicorn: the limits of the HTTP layer, an orderly end. It owns no socket and no engine."""

from __future__ import annotations

import math

import uvicorn
from fastapi import FastAPI

from forebay.api.config import ApiConfig

_BACKLOG = 2048


def make_server(app: FastAPI, config: ApiConfig) -> uvicorn.Server:
    """A server that the caller runs: `await server.serve(sockets=[listener])`.

    Ctrl-C or SIGTERM, or `should_exit` set to True, lets running requests finish for `shutdown_grace_s` (whole seconds,
    rounded up) and then cancels them: their generations are aborted, and their clients are told. So is what runs in the
    background, by the app's lifespan.
    """
    options = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=math.ceil(config.shutdown_grace_s),
        h11_max_incomplete_event_size=64 * 1024,
    )
    return uvicorn.Server(options)
