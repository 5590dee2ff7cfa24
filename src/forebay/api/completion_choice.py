"""One choice of a text completion: its text with the prompt before it where `echo` asks for that, and its logprobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay.api.generation import Delta
from forebay.api.logprobs import LegacyLogprobs, joined, prompt_logprobs
from forebay.api.openai_types import CompletionRequest
from forebay.api.ports import RecipePort
from forebay.core.messages import TokenLogprobs

PromptLogprobs = Sequence[TokenLogprobs | None] | None


class CompletionChoice:
    """Shapes the deltas of one choice, in order."""

    def __init__(
        self, body: CompletionRequest, recipe: RecipePort, index: int, prompt_ids: list[int], prompt_text: str
    ) -> None:
        self._body = body
        self._recipe = recipe
        self._index = index
        self._prompt_ids = prompt_ids
        self._prompt_text = prompt_text
        self._logprobs = LegacyLogprobs(recipe)
        self._echo_due = bool(body.echo)
        self._prompt_only = body.max_tokens == 0

    def whole(self, delta: Delta, prompt: PromptLogprobs) -> dict[str, Any]:
        """The choice in one piece."""
        choice = self._shape(delta, prompt)
        if self._body.prompt_logprobs is not None and prompt is not None:
            choice["prompt_logprobs"] = prompt_logprobs(self._recipe, prompt)
        return choice

    def chunk(self, delta: Delta, prompt: PromptLogprobs) -> dict[str, Any] | None:
        """The choice of one chunk; None when it would say nothing."""
        return None if delta.empty and not self._echo_due else self._shape(delta, prompt)

    def _shape(self, delta: Delta, prompt: PromptLogprobs) -> dict[str, Any]:
        text, logprobs = ("", None)
        if self._echo_due:
            text, logprobs = self._echo(prompt)
        self._echo_due = False
        if not self._prompt_only:
            text += delta.text
            if delta.logprobs is not None:
                logprobs = joined(logprobs, self._logprobs.add(delta.logprobs, delta.token_ids))
        finish = None if delta.finish is None else delta.finish.reason.value
        return {"index": self._index, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def _echo(self, prompt: PromptLogprobs) -> tuple[str, dict[str, Any] | None]:
        if self._body.logprobs is None or prompt is None:
            return self._prompt_text, None
        return self._prompt_text, self._logprobs.add(self._cut(prompt), self._prompt_ids)

    def _cut(self, prompt: Sequence[TokenLogprobs | None]) -> list[TokenLogprobs | None]:
        """As many alternatives as `logprobs` asks for, where `prompt_logprobs` asked for more."""
        most = self._body.logprobs or 0
        return [None if p is None else TokenLogprobs(p.token_id, p.logprob, p.top[:most]) for p in prompt]
