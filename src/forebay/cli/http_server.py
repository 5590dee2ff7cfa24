"""The HTTP side of `forebay serve`: the API's configuration, and all that its server needs besides an engine.

Imported once the engine's process has been started, since its imports take a second.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from forebay.api import ApiConfig, build_app, check_bind, configure_logs, make_server
from forebay.api.auth import configured_keys
from forebay.cli.public_prefix import public_prefix
from forebay.cli.serve import HttpOptions
from forebay.models import ModelConfig, ModelSource, describe
from forebay.recipe import Recipe
from forebay.router import Router


@dataclass(frozen=True, slots=True)
class PreparedServer:
    """A server that waits for its engine."""

    build: Callable[[Router], uvicorn.Server]
    """Makes the server for a router."""
    keys: int
    """How many API keys there are."""
    public: list[list[int]]
    """Token ids of the public prefixes."""
    model: ModelConfig
    """What the model's files say of it."""


def prepare(source: ModelSource, http: HttpOptions, public: Sequence[Path]) -> PreparedServer:
    """Read the model's description, the tokenizer, the keys, and the public prefixes in the files `public`. Raises
    ForebayError.
    """
    configure_logs(http.log_level, http.log_format)
    config = api_config(http)
    check_bind(config)
    model = describe(source)
    recipe = Recipe.load(source.path, source.kind)
    return PreparedServer(
        build=lambda router: _Server(make_server(build_app(router, recipe, config), config).config),
        keys=len(configured_keys(config)),
        public=[public_prefix(recipe, file) for file in public],
        model=model,
    )


def api_config(http: HttpOptions) -> ApiConfig:
    """The API's part of the options."""
    return ApiConfig(
        host=http.host,
        port=http.port,
        served_model_names=http.served_model_name,
        api_keys=http.api_key,
        api_key_file=http.api_key_file,
        allow_unauthenticated=http.allow_unauthenticated,
        strict_markers=http.strict_markers,
        max_body_bytes=http.max_body_size,
        max_messages=http.max_messages,
        kept_answers=http.kept_answers,
        kept_answers_bytes=http.kept_answers_size,
        kept_answers_ttl_s=http.kept_answers_ttl,
        stored_responses=http.stored_responses,
        stored_responses_bytes=http.stored_responses_size,
        stored_responses_ttl_s=http.stored_responses_ttl,
        request_timeout_s=http.request_timeout,
        shutdown_grace_s=http.shutdown_grace,
    )


class _Server(uvicorn.Server):
    """Uvicorn's server without its signal handlers: `Stop` has them, for the time of loading as well."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
