"""Answers for `forebay chat` from an engine that it starts and ends itself: no server, no port."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

from forebay.cli import console
from forebay.cli.chat import ChatOptions
from forebay.cli.chat_source import Turns
from forebay.cli.options import EngineOptions, SchedulingOptions
from forebay.cli.worker import worker_options
from forebay.cluster import local_worker
from forebay.core.errors import ContextLengthError, EngineUnavailableError
from forebay.core.messages import TokenOutput
from forebay.core.request import FinishReason, GenerateRequest, SamplingParams
from forebay.models import resolve
from forebay.recipe import Conversation, Message, Recipe, TextStream
from forebay.recipe.conversation import Role
from forebay.router import Router


@asynccontextmanager
async def local_source(model: str, chat: ChatOptions, engine: EngineOptions) -> AsyncIterator[LocalSource]:
    """Load the model in a worker process that ends with this context. Raises ForebayError when that can't be done."""
    source = await asyncio.to_thread(resolve, model)
    options = worker_options(source, source.name, engine, SchedulingOptions(max_running=1, max_waiting=1))
    recipe = await asyncio.to_thread(Recipe.load, source.path, source.kind)
    async with AsyncExitStack() as stack:
        with console.stages("starting the engine") as report:
            router = await stack.enter_async_context(local_worker(options, report))
        yield LocalSource(router, recipe, chat)


@dataclass(frozen=True, slots=True)
class LocalSource:
    """Answers from a router and a recipe, as the API would give them."""

    router: Router
    recipe: Recipe
    options: ChatOptions
    counter: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def name(self) -> str:
        """The model and its kernels."""
        return f"{self.router.model.name} on this machine ({self.router.model.kernels} kernels)"

    async def answer(self, turns: Turns) -> AsyncIterator[str]:
        """Pieces of the answer. Closing it early makes the worker drop the request."""
        messages = [Message(cast("Role", turn["role"]), turn["content"]) for turn in turns]
        prompt = self.recipe.encode_chat(Conversation(messages))
        request = GenerateRequest(
            id=f"chat-{next(self.counter)}", prompt_ids=prompt.ids, sampling=self._sampling(len(prompt))
        )
        stream = TextStream(self.recipe.detokenizer(prompt.ids))
        async with aclosing(self.router.generate(request)) as outputs:
            async for output in outputs:
                yield _text_of(output, stream)

    def _sampling(self, prompt_tokens: int) -> SamplingParams:
        limit = self.router.model.max_model_len
        if prompt_tokens >= limit:
            raise ContextLengthError(prompt_tokens, limit)
        room = limit - prompt_tokens
        options = self.options
        return SamplingParams(
            max_tokens=min(options.max_tokens or room, room),
            temperature=options.temperature,
            seed=secrets.randbits(32) if options.seed is None else options.seed,
            stop_token_ids=self.recipe.stop_token_ids,
        )


def _text_of(output: TokenOutput, stream: TextStream) -> str:
    if output.finish_reason is FinishReason.ERROR:
        raise EngineUnavailableError(output.error or "The engine gave up on this answer.")
    text = stream.push(output.token_ids).text
    return text if output.finish_reason is None else text + stream.finish().text
