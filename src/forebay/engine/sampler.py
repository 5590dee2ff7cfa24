"""From logits to tokens for all rows of a step. Knows sampling parameters and ids, nothing of pages, steps or the
model.

Order of the filters: penalties, logit bias, the grammar and the minimum length on the raw logits; then temperature;
then top_k, top_p and min_p. The draw is the inverse of the cumulative distribution at a counter-based number, so a
row's token depends on its own logits and grammar and on (seed, choice, position) only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from forebay.core.request import SamplingParams
from forebay.engine.randomness import uniform

Floats = npt.NDArray[np.float64]

_NARROW = 256
"""Filtered rows first look at this many best tokens; only where these do not decide is the whole vocabulary sorted."""


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


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """Draw one token for each of `draws` from `logits` fp32 [M, V]. The logits are left as they are."""
    if not draws:
        return []
    rows = [draw.row for draw in draws]
    taken = logits if rows == list(range(len(logits))) else logits[torch.tensor(rows)]
    edited = {i: _edited(taken[i], draw) for i, draw in enumerate(draws) if _edits(draw)}
    tokens = taken.argmax(dim=-1).tolist()
    for i, row in edited.items():
        tokens[i] = int(row.argmax())
    random = [i for i, draw in enumerate(draws) if draw.sampling.temperature > 0]
    if random:
        wanted = taken[random]
        for place, i in enumerate(random):
            if i in edited:
                wanted[place] = edited[i]
        for i, token in zip(random, _draw_random(wanted, [draws[i] for i in random]), strict=True):
            tokens[i] = token
    return tokens


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


def _draw_random(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """Temperature, filters and the draw for rows [M, V] that all have a temperature above 0."""
    temperatures = torch.tensor([draw.sampling.temperature for draw in draws]).unsqueeze(1)
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    probabilities = torch.softmax(shifted / temperatures, dim=-1)
    points = [uniform(draw.sampling.seed, draw.choice, len(draw.output_ids)) for draw in draws]
    tokens = [0] * len(draws)
    plain = [i for i, draw in enumerate(draws) if not _filters(draw.sampling)]
    if plain:
        for i, token in zip(plain, _draw_plain(probabilities[plain], [points[i] for i in plain]), strict=True):
            tokens[i] = token
    filtered = [i for i, draw in enumerate(draws) if _filters(draw.sampling)]
    if filtered:
        best, ids = torch.topk(probabilities[filtered], min(_NARROW, logits.shape[1]), dim=-1)
        for i, values, candidates in zip(filtered, best, ids, strict=True):
            tokens[i] = _draw_filtered(probabilities[i], values, candidates, draws[i].sampling, points[i])
    return tokens


def _filters(params: SamplingParams) -> bool:
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def _draw_plain(probabilities: Tensor, points: Sequence[float]) -> list[int]:
    cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
    targets = torch.tensor(points, dtype=torch.float64).unsqueeze(1) * cumulative[:, -1:]
    found = torch.searchsorted(cumulative, targets, right=True).squeeze(1)
    tokens: list[int] = found.clamp_max(probabilities.shape[1] - 1).tolist()
    return tokens


def _draw_filtered(probabilities: Tensor, best: Tensor, ids: Tensor, params: SamplingParams, point: float) -> int:
    """Draw from a row [V] given its best candidates, sorted; the row is sorted whole only where these don't decide."""
    kept = _kept(best.double().numpy(), params, complete=len(best) == len(probabilities))
    if kept is None:
        best, ids = probabilities.sort(descending=True, stable=True)
        kept = _kept(best.double().numpy(), params, complete=True) or len(best)
    cumulative = best[:kept].double().cumsum(0).numpy()
    index = int(np.searchsorted(cumulative, point * cumulative[-1], side="right"))
    return int(ids[min(index, kept - 1)])


def _kept(mass: Floats, params: SamplingParams, *, complete: bool) -> int | None:
    """How many of the best candidates the filters keep (at least 1).

    `mass` is sorted by falling probability; `complete` says that it is the whole vocabulary. None: the answer depends
    on candidates that are not in `mass`.
    """
    kept, decided, total = len(mass), complete, 1.0
    if params.top_k and params.top_k <= kept:
        kept, decided = params.top_k, True
        total = float(mass[:kept].sum())
    elif params.top_k and not complete:
        return None
    if params.top_p < 1.0:
        reached = int(np.searchsorted(mass[:kept].cumsum(), params.top_p * total, side="left")) + 1
        if reached <= kept:
            kept, decided = reached, True
    if params.min_p > 0.0:
        likely = int((mass[:kept] >= params.min_p * mass[0]).sum())
        if likely < kept:
            kept, decided = likely, True
    return max(kept, 1) if decided else None
