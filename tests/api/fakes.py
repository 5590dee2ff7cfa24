"""A router without an engine: it answers every prompt with a text of the test's choice, token by token. Not a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

from forebay.core.errors import EngineUnavailableError, ForebayError
from forebay.core.messages import IntegrityReport, ModelInfo, TokenLogprobs, TokenOutput, TopLogprob, WorkerStats
from forebay.core.request import FinishReason, GenerateRequest
from forebay.recipe import Recipe

MODEL = ModelInfo(
    name="smollm2",
    architecture="llama",
    vocab_size=49_152,
    max_model_len=512,
    fingerprint="00",
    parameters=1,
    weight_bytes=1,
    kv_bytes=1,
    kernels="none",
)


@dataclass
class FakeRouter:
    """Fits `RouterPort`. Choice i says the answer with i in front, when there are several."""

    recipe: Recipe
    answer: str = "The forebay holds the water back."
    cached_tokens: int = 0
    cached_host: int = 0
    cached_disk: int = 0
    model: ModelInfo = MODEL
    healthy: bool = True
    on_stats: Callable[[WorkerStats], None] | None = None
    refuse: ForebayError | None = None
    """Raised before the first output."""
    break_after: int | None = None
    """Outputs before `breaks` is raised."""
    breaks: ForebayError | None = None
    error_text: str | None = None
    """The engine's own failure: an ERROR output at once."""
    hold_after: int | None = None
    """Outputs before the fake goes silent."""
    requests: list[GenerateRequest] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    release: asyncio.Event | None = None
    """Made in the server's loop; setting it ends the silence."""

    def reset(self, **fields: Any) -> None:
        """Behave as one made anew with these fields; the model stays."""
        fresh = FakeRouter(self.recipe, **{"model": self.model, **fields})
        fresh.on_stats = self.on_stats
        vars(self).update(vars(fresh))

    async def check_integrity(self) -> IntegrityReport:
        """All is well, while there is an engine."""
        if not self.healthy:
            raise EngineUnavailableError("The engine is not there.")
        return IntegrityReport(id=0, problems=[], pages_total=8, pages_used=0, pages_cached=3, sequences=0)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenOutput, None]:
        """The answer, one token an output."""
        self.requests.append(request)
        if self.refuse is not None:
            raise self.refuse
        complete = False
        try:
            if self.hold_after == 0:
                await self._silence()
            for sent, output in enumerate(self._outputs(request), 1):
                yield output
                if self.hold_after == sent:
                    await self._silence()
                if self.break_after == sent and self.breaks is not None:
                    raise self.breaks
                await asyncio.sleep(0)
            complete = True
        finally:
            if not complete:
                self.aborted.append(request.id)

    async def _silence(self) -> None:
        self.release = asyncio.Event()
        await self.release.wait()

    def _outputs(self, request: GenerateRequest) -> list[TokenOutput]:
        if self.error_text is not None:
            return [TokenOutput(request_id=request.id, finish_reason=FinishReason.ERROR, error=self.error_text)]
        by_choice = [self._choice(request, index) for index in range(request.sampling.n)]
        longest = max(len(outputs) for outputs in by_choice)
        return [outputs[i] for i in range(longest) for outputs in by_choice if i < len(outputs)]

    def _choice(self, request: GenerateRequest, index: int) -> list[TokenOutput]:
        sampling = request.sampling
        text = self.answer if sampling.n == 1 else f"{index} {self.answer}"
        ids = self.recipe.plain_ids(text)
        reason = FinishReason.LENGTH
        if len(ids) < sampling.max_tokens and sampling.stop_token_ids:
            ids = [*ids, sampling.stop_token_ids[0]]
            reason = FinishReason.STOP
        ids = ids[: sampling.max_tokens]
        outputs = [
            TokenOutput(request_id=request.id, index=index, token_ids=[i], logprobs=_logprobs([i], sampling.logprobs))
            for i in ids
        ]
        outputs[0].cached_tokens = self.cached_tokens
        outputs[0].cached_host, outputs[0].cached_disk = self.cached_host, self.cached_disk
        outputs[0].queued_s = 0.0
        outputs[-1].finish_reason = reason
        if index == 0 and sampling.prompt_logprobs is not None:
            known = _logprobs(request.prompt_ids, sampling.prompt_logprobs) or []
            outputs[0].prompt_logprobs = [None, *known[1:]]
        return outputs


def _logprobs(ids: list[int], top: int | None) -> list[TokenLogprobs] | None:
    """Each token at -0.5; the alternatives are the ids below it."""
    if top is None:
        return None
    return [TokenLogprobs(i, -0.5, [TopLogprob(max(i - k, 0), -0.5 - k) for k in range(top)]) for i in ids]
