"""What one generation asks for: ids in, sampling, priority, tenant.

Not a protocol's JSON, and nothing about how it runs.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

from forebay.core.grammar import GrammarSpec


class Priority(IntEnum):
    """Who is served first: the lower number. Waiting ages a request upward, so nothing starves."""

    CRITICAL_INTERACTIVE = 0
    NORMAL_INTERACTIVE = 1
    SPECULATIVE_DRAFT = 2
    BACKGROUND_BATCH = 3


class FinishReason(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"
    """A stop token was sampled (or, seen by the API, a stop string)."""
    LENGTH = "length"
    """`max_tokens`, or the end of the model's context."""
    ABORT = "abort"
    """The client went away or asked to stop."""
    ERROR = "error"
    """The engine could not go on; `TokenOutput.error` says why."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are chosen. Every value is already checked and every default resolved by the API."""

    max_tokens: int
    """Upper bound on new tokens, at least 1."""
    min_tokens: int = 0
    """Stop tokens can't be sampled before this many tokens."""
    temperature: float = 1.0
    """0 takes the most likely token."""
    top_p: float = 1.0
    """Keep the smallest set of tokens whose mass reaches this; 1 keeps all."""
    top_k: int = 0
    """Keep this many tokens; 0 keeps all."""
    min_p: float = 0.0
    """Drop tokens less likely than this share of the most likely one."""
    repetition_penalty: float = 1.0
    """Divide (positive) or multiply (negative) the logits of tokens seen in prompt or answer; 1 is off."""
    presence_penalty: float = 0.0
    """Subtracted once from the logit of each token of the answer so far."""
    frequency_penalty: float = 0.0
    """Subtracted from a token's logit for each time it is in the answer so far."""
    logit_bias: dict[int, float] = {}
    """Added to the logits of these token ids."""
    seed: int = 0
    """Randomness is a function of (seed, choice index, position) only; the API draws one when the client gave none."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end the answer: the model's own (unless `ignore_eos`) and the client's. The id itself comes last."""
    n: int = 1
    """How many answers; they share the prompt's pages."""
    logprobs: int | None = None
    """None: no logprobs. k >= 0: the chosen token's logprob and those of the k most likely."""
    prompt_logprobs: int | None = None
    """The same for the tokens of the prompt."""
    grammar: GrammarSpec | None = None
    """What the answer has to look like; it can then end only where the grammar allows."""


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt to continue, as ids. The caller's identity (`tenant`) comes from its key, never from its request."""

    id: str
    prompt_ids: list[int]
    sampling: SamplingParams
    priority: Priority = Priority.NORMAL_INTERACTIVE
    tenant: str = "default"
    retention: str | None = None
    """Name of the retention class of what this request leaves in the cache; None takes the server's default."""
