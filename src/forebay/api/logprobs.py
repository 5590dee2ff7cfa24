"""Log probabilities in the shapes of OpenAI's two endpoints and of vLLM's `prompt_logprobs`. Plain dicts out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from forebay.api.ports import RecipePort
from forebay.core.messages import TokenLogprobs

_LEAST = -9999.0
"""Stands for minus infinity, which JSON lacks."""


def token_name(recipe: RecipePort, token_id: int) -> str:
    """A token's text; `bytes:\\x..` where it is a part of a character only."""
    raw = recipe.token_bytes(token_id)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def finite(logprob: float) -> float:
    """The number as JSON can hold it."""
    return logprob if math.isfinite(logprob) else _LEAST


def _entry(recipe: RecipePort, token_id: int, logprob: float) -> dict[str, Any]:
    raw = recipe.token_bytes(token_id)
    return {"token": token_name(recipe, token_id), "logprob": finite(logprob), "bytes": list(raw)}


def chat_logprobs(recipe: RecipePort, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any]:
    """`choices[].logprobs` of chat completions."""
    content = [
        _entry(recipe, p.token_id, p.logprob) | {"top_logprobs": [_entry(recipe, t.token_id, t.logprob) for t in p.top]}
        for p in logprobs
    ]
    return {"content": content, "refusal": None}


class LegacyLogprobs:
    """`choices[].logprobs` of text completions: parallel lists, with offsets that run over the whole answer."""

    def __init__(self, recipe: RecipePort) -> None:
        self._recipe = recipe
        self._offset = 0

    def add(self, logprobs: Sequence[TokenLogprobs | None], ids: Sequence[int]) -> dict[str, Any]:
        """The lists for the next tokens; None stands for a token without a probability, the first of a prompt."""
        tokens, offsets = [], []
        for token_id in ids:
            name = token_name(self._recipe, token_id)
            tokens.append(name)
            offsets.append(self._offset)
            self._offset += len(name)
        return {
            "tokens": tokens,
            "token_logprobs": [None if p is None else finite(p.logprob) for p in logprobs],
            "top_logprobs": [None if p is None else self._top(p) for p in logprobs],
            "text_offset": offsets,
        }

    def _top(self, logprobs: TokenLogprobs) -> dict[str, float]:
        top = {token_name(self._recipe, t.token_id): finite(t.logprob) for t in logprobs.top}
        top.setdefault(token_name(self._recipe, logprobs.token_id), finite(logprobs.logprob))
        return top


def joined(first: dict[str, Any] | None, second: dict[str, Any]) -> dict[str, Any]:
    """Two results of `LegacyLogprobs.add`, one after the other."""
    return second if first is None else {key: first[key] + second[key] for key in second}


def prompt_logprobs(recipe: RecipePort, logprobs: Sequence[TokenLogprobs | None]) -> list[dict[str, Any] | None]:
    """vLLM's `prompt_logprobs`: for each prompt token, id → logprob, rank (null: not among the best) and text."""
    return [None if p is None else _ranked(recipe, p) for p in logprobs]


def _ranked(recipe: RecipePort, logprobs: TokenLogprobs) -> dict[str, Any]:
    ranked = [(t.token_id, t.logprob, rank) for rank, t in enumerate(logprobs.top, 1)]
    known = {token_id for token_id, _, _ in ranked}
    own = [] if logprobs.token_id in known else [(logprobs.token_id, logprobs.logprob, None)]
    return {
        str(token_id): {"logprob": finite(value), "rank": rank, "decoded_token": token_name(recipe, token_id)}
        for token_id, value, rank in [*own, *ranked]
    }
