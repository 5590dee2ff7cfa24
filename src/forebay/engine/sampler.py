"""From logits to tokens for all rows of a step. Knows sampling parameters and ids, nothing of pages, steps or the
model.

Penalties, logit bias, the grammar and the minimum length edit the raw logits here; then the kernels draw, at a
counter-based number, so a row's token depends on its own logits and grammar and on (seed, choice, position) only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from forebay.core.request import SamplingParams
from forebay.engine.randomness import uniform
from forebay.kernels import Kernels, Pick


@dataclass(frozen=True, slots=True)
class Draw:
    """One token to draw."""

    row: int
    """Which row of the logits."""
    sampling: SamplingParams
    choice: int
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]
    """The answer so far; its length is the position of the token to draw."""
    request_id: str = ""
    allowed: Tensor | None = None
    """bool [at least V]: the tokens that a grammar allows, at least one; None allows all."""


def sample(logits: Tensor, draws: Sequence[Draw], kernels: Kernels) -> list[int]:
    """Draw one token for each of `draws` from `logits` fp32 [M, V]. The logits are left as they are."""
    plain = [i for i, draw in enumerate(draws) if not _edits(draw)]
    edited = [i for i, draw in enumerate(draws) if _edits(draw)]
    tokens = [0] * len(draws)
    if plain:
        picks = [_pick(draws[i], draws[i].row) for i in plain]
        for i, token in zip(plain, kernels.draw(logits, picks), strict=True):
            tokens[i] = token
    if edited:
        rows = torch.stack([_edited(logits[draws[i].row], draws[i]) for i in edited])
        picks = [_pick(draws[i], row) for row, i in enumerate(edited)]
        for i, token in zip(edited, kernels.draw(rows, picks), strict=True):
            tokens[i] = token
    return tokens


def _pick(draw: Draw, row: int) -> Pick:
    params = draw.sampling
    if params.temperature <= 0:
        return Pick(row)
    point = uniform(params.seed, draw.choice, len(draw.output_ids))
    return Pick(row, params.temperature, params.top_k, params.top_p, params.min_p, point)


def _edits(draw: Draw) -> bool:
    params = draw.sampling
    return (
        bool(params.logit_bias)
        or params.repetition_penalty != 1.0
        or params.presence_penalty != 0.0
        or params.frequency_penalty != 0.0
        or len(draw.output_ids) < params.min_tokens
        or draw.allowed is not None
    )


def _edited(row: Tensor, draw: Draw) -> Tensor:
    """A copy of one row [V] with penalties, bias, the grammar and the minimum length."""
    row = row.clone()
    params = draw.sampling
    if params.repetition_penalty != 1.0 and (draw.prompt_ids or draw.output_ids):
        seen = torch.tensor([*draw.prompt_ids, *draw.output_ids])
        values = row[seen]
        penalty = params.repetition_penalty
        row[seen] = torch.where(values > 0, values / penalty, values * penalty)
    if draw.output_ids and (params.presence_penalty or params.frequency_penalty):
        ids, counts = np.unique(np.asarray(draw.output_ids), return_counts=True)
        cost = params.presence_penalty + params.frequency_penalty * counts
        row[torch.from_numpy(ids)] -= torch.from_numpy(cost).float()
    if params.logit_bias:
        row[torch.tensor(list(params.logit_bias))] += torch.tensor(list(params.logit_bias.values()), dtype=row.dtype)
    if draw.allowed is not None:
        row.masked_fill_(~draw.allowed[: len(row)], -torch.inf)
    if len(draw.output_ids) < params.min_tokens and params.stop_token_ids:
        _forbid(row, params.stop_token_ids)
    return row


def _forbid(row: Tensor, tokens: Sequence[int]) -> None:
    """Exclude tokens from a row, unless a grammar has left nothing else."""
    ids = torch.tensor(tokens)
    kept = row[ids]
    row[ids] = -torch.inf
    if bool(row.max() == -torch.inf):
        row[ids] = kept
