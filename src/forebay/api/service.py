"""What all routes share: the router, the recipe, the options, the metrics; and the steps that every generation takes.

Not a protocol: it takes conversations and ids, and gives `Generation`s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
from starlette.requests import Request

from forebay.api.answer_store import AnswerStore
from forebay.api.asking import Ask, Prepared
from forebay.api.auth import Identity
from forebay.api.config import ApiConfig
from forebay.api.errors import FaultError, Kind
from forebay.api.generation import Delta, Generation, collect
from forebay.api.grammars import check_text
from forebay.api.hangup import until_hangup
from forebay.api.keeping import KeptAnswers
from forebay.api.metrics import ApiMetrics
from forebay.api.observe import RequestObserver
from forebay.api.ports import RecipePort, RouterPort
from forebay.api.preparing import INLINE_CHARS, prepare
from forebay.api.sampling import Sampling, params_for_prompt
from forebay.api.sse import EventStream, EventWriter
from forebay.core.errors import InvalidRequestError
from forebay.core.request import GenerateRequest, Priority


@dataclass(frozen=True, slots=True)
class Service:
    """The parts behind one app."""

    router: RouterPort
    recipe: RecipePort
    config: ApiConfig
    metrics: ApiMetrics
    answers: AnswerStore
    started: int = field(default_factory=lambda: int(time.time()))
    """Unix seconds; the `created` of the model."""

    @property
    def names(self) -> list[str]:
        """Names that a request may give for the model, the one to show first."""
        return list(dict.fromkeys((*self.config.served_model_names, self.router.model.name)))

    def check_model(self, name: str | None) -> None:
        """Raise FaultError (404) when a request names another model than the one that is served."""
        if name is not None and name not in self.names:
            raise FaultError(
                Kind.MODEL, f"The model '{name[:200]}' is not served here. Use '{self.names[0]}'.", "model"
            )

    def check_messages(self, count: int) -> None:
        """Raise InvalidRequestError for a conversation above the bound."""
        if count > self.config.max_messages:
            text = f"'messages' has {count} messages; this server allows at most {self.config.max_messages}."
            raise InvalidRequestError(text, "messages")

    async def prepare(self, ask: Ask, identity: Identity) -> Prepared:
        """All that comes before a generation, for a caller. Raises InvalidRequestError in the terms of the request."""
        strict = self.strict_markers(identity, asked=ask.strict_markers)
        ask = replace(ask, strict_markers=strict)
        return await prepare(ask, self.recipe, KeptAnswers(self.answers, identity.tenant, self.metrics.answers))

    def strict_markers(self, identity: Identity, *, asked: bool | None) -> bool:
        """Whether markers are refused: as the server, the key, or the request says; none can switch it off."""
        return self.config.strict_markers or identity.strict_markers or bool(asked)

    async def encode_text(self, text: str, *, special: bool = True) -> list[int]:
        """Ids of a raw prompt (`special`: with the model's beginning token), without holding up the event loop."""
        check_text(text, "prompt")
        if len(text) <= INLINE_CHARS:
            return self._encode(text, special)
        return await asyncio.to_thread(self._encode, text, special)

    def _encode(self, text: str, special: bool) -> list[int]:
        return self.recipe.encode_text(text).ids if special else self.recipe.plain_ids(text)

    def generation(
        self,
        request_id: str,
        prompt: Prepared | list[int],
        sampling: Sampling,
        priority: Priority,
        identity: Identity,
        *,
        prompt_param: str,
        first: int = 0,
        retention: str | None = None,
    ) -> Generation:
        """One prompt, ready to run; ids are a bare text, which the answer continues.

        Raises ContextLengthError or InvalidRequestError when the answer can't fit.
        """
        prepared = None if isinstance(prompt, list) else prompt
        ids = prompt if isinstance(prompt, list) else prompt.ids
        params = params_for_prompt(sampling, len(ids), self.router.model.max_model_len, prompt_param)
        if prepared is not None and prepared.grammar is not None:
            params = msgspec.structs.replace(params, grammar=prepared.grammar)
        request = GenerateRequest(
            id=request_id,
            prompt_ids=ids,
            sampling=params,
            priority=priority,
            tenant=identity.tenant,
            retention=retention or identity.retention,
        )
        observer = RequestObserver(self.metrics)
        return Generation(request, self.recipe, sampling.stop, observer, first=first, prepared=prepared)

    async def collect(self, request: Request, generations: Sequence[Generation]) -> dict[int, Delta]:
        """Run to the end, or until the client is gone (ClientGoneError)."""
        work = collect(generations, self.router, self.config.request_timeout_s)
        return await until_hangup(request.receive, work)

    def stream(self, generations: Sequence[Generation], writer: EventWriter) -> EventStream:
        """The streamed answer."""
        return EventStream(generations, self.router, writer, self.config)


def identity_of(request: Request) -> Identity:
    """Who sent the request, as the authentication found."""
    identity: Identity = request.state.identity
    return identity
