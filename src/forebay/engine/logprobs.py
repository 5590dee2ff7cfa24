"""Log probabilities of chosen and most likely tokens, from raw logits (before penalties and temperature), in fp32."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forebay.core.messages import TokenLogprobs, TopLogprob


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
