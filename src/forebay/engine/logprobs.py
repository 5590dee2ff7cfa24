"""Log probabilities of chosen and most likely tokens, from raw logits (before penalties and temperature), in fp32."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forebay.core.messages import TokenLogprobs, TopLogprob
from forebay.engine.sampler import Draw


def token_logprobs(logits: Tensor, token_ids: Sequence[int], top: int) -> list[TokenLogprobs]:
    """For each row of `logits` [M, V] the logprob of token_ids[row] and the `top` most likely tokens, best first."""
    logprobs = torch.log_softmax(logits, dim=-1)
    chosen = logprobs.gather(1, torch.tensor(token_ids).unsqueeze(1)).squeeze(1).tolist()
    if top == 0:
        return [TokenLogprobs(token, value, []) for token, value in zip(token_ids, chosen, strict=True)]
    values, ids = logprobs.topk(min(top, logits.shape[1]), dim=-1)
    return [
        TokenLogprobs(token, value, [TopLogprob(i, v) for i, v in zip(row_ids, row_values, strict=True)])
        for token, value, row_ids, row_values in zip(token_ids, chosen, ids.tolist(), values.tolist(), strict=True)
    ]


def drawn_logprobs(logits: Tensor, draws: Sequence[Draw], drawn: Sequence[int]) -> list[TokenLogprobs | None]:
    """For each draw from a row of `logits` [M, V] what its request asked for; None where that is nothing."""
    found: list[TokenLogprobs | None] = [None] * len(draws)
    for top in {draw.sampling.logprobs for draw in draws} - {None}:
        chosen = [i for i, draw in enumerate(draws) if draw.sampling.logprobs == top]
        rows = logits[[draws[i].row for i in chosen]]
        for i, logprobs in zip(chosen, token_logprobs(rows, [drawn[i] for i in chosen], top or 0), strict=True):
            found[i] = logprobs
    return found
