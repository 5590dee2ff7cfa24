"""What a token is drawn by, the same drawing in plain torch, and its numbers as the compiled library reads them.

Temperature, then top_k, top_p and min_p; the draw is the inverse of the cumulative distribution at a number from the
caller. Penalties, bias and grammars have been applied to the logits before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_double, c_int64
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Floats = npt.NDArray[np.float64]

_NARROW = 256
"""Filtered rows first look at this many best tokens; only where these do not decide is the whole vocabulary sorted."""


@dataclass(frozen=True, slots=True)
class Pick:
    """One token to draw."""

    row: int
    """Which row of the logits."""
    temperature: float = 0.0
    """0 takes the most likely token; nothing else counts then."""
    top_k: int = 0
    """0 keeps all."""
    top_p: float = 1.0
    min_p: float = 0.0
    point: float = 0.0
    """In [0, 1): where in the cumulative distribution of what is kept the token is. The kept ones are in the order of
    falling probability, or in that of ids when nothing is filtered."""

    @property
    def filters(self) -> bool:
        """Whether some tokens may be excluded."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


class NativePick(ctypes.Structure):
    """A `Pick` in the order of `csrc/draw.cpp`."""

    _fields_ = [
        *((name, c_double) for name in ("temperature", "top_p", "min_p", "point")),
        *((name, c_int64) for name in ("row", "top_k")),
    ]


def native_picks(picks: Sequence[Pick], rows: int) -> ctypes.Array[NativePick]:
    """For the library. Raises ValueError for a row that isn't there and for numbers outside their range."""
    for pick in picks:
        if not 0 <= pick.row < rows:
            raise ValueError(f"row {pick.row} of {rows}")
        if pick.top_k < 0 or not 0 <= pick.min_p <= 1 or not 0 <= pick.point < 1 or pick.top_p <= 0:
            raise ValueError(f"{pick} is out of range")
    return (NativePick * len(picks))(
        *(NativePick(p.temperature, p.top_p, p.min_p, p.point, p.row, p.top_k) for p in picks)
    )


def draw(logits: Tensor, picks: Sequence[Pick]) -> list[int]:
    """One token for each pick from `logits` fp32 [M, V], which stay as they are."""
    rows = torch.tensor([pick.row for pick in picks])
    tokens: list[int] = logits.argmax(dim=-1)[rows].tolist()
    random = [i for i, pick in enumerate(picks) if pick.temperature > 0]
    if random:
        drawn = _draw_random(logits[rows[random]], [picks[i] for i in random])
        for i, token in zip(random, drawn, strict=True):
            tokens[i] = token
    return tokens


def _draw_random(logits: Tensor, picks: Sequence[Pick]) -> list[int]:
    """Rows [M, V] that all have a temperature above 0."""
    temperatures = torch.tensor([pick.temperature for pick in picks]).unsqueeze(1)
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    probabilities = torch.softmax(shifted / temperatures, dim=-1)
    tokens = [0] * len(picks)
    plain = [i for i, pick in enumerate(picks) if not pick.filters]
    if plain:
        for i, token in zip(plain, _draw_plain(probabilities[plain], [picks[i].point for i in plain]), strict=True):
            tokens[i] = token
    filtered = [i for i, pick in enumerate(picks) if pick.filters]
    if filtered:
        best, ids = torch.topk(probabilities[filtered], min(_NARROW, logits.shape[1]), dim=-1)
        for i, values, candidates in zip(filtered, best, ids, strict=True):
            tokens[i] = _draw_filtered(probabilities[i], values, candidates, picks[i])
    return tokens


def _draw_plain(probabilities: Tensor, points: Sequence[float]) -> list[int]:
    cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
    targets = torch.tensor(points, dtype=torch.float64).unsqueeze(1) * cumulative[:, -1:]
    found = torch.searchsorted(cumulative, targets, right=True).squeeze(1)
    tokens: list[int] = found.clamp_max(probabilities.shape[1] - 1).tolist()
    return tokens


def _draw_filtered(probabilities: Tensor, best: Tensor, ids: Tensor, pick: Pick) -> int:
    """Draw from a row [V] given its best candidates, sorted; the row is sorted whole only where these don't decide."""
    kept = _kept(best.double().numpy(), pick, complete=len(best) == len(probabilities))
    if kept is None:
        best, ids = probabilities.sort(descending=True, stable=True)
        kept = _kept(best.double().numpy(), pick, complete=True) or len(best)
    cumulative = best[:kept].double().cumsum(0).numpy()
    index = int(np.searchsorted(cumulative, pick.point * cumulative[-1], side="right"))
    return int(ids[min(index, kept - 1)])


def _kept(mass: Floats, pick: Pick, *, complete: bool) -> int | None:
    """How many of the best candidates the filters keep (at least 1).

    `mass` is sorted by falling probability; `complete` says that it is the whole vocabulary. None: the answer depends
    on candidates that are not in `mass`.
    """
    kept, decided, total = len(mass), complete, 1.0
    if pick.top_k and pick.top_k <= kept:
        kept, decided = pick.top_k, True
        total = float(mass[:kept].sum())
    elif pick.top_k and not complete:
        return None
    if pick.top_p < 1.0:
        reached = int(np.searchsorted(mass[:kept].cumsum(), pick.top_p * total, side="left")) + 1
        if reached <= kept:
            kept, decided = reached, True
    if pick.min_p > 0.0:
        likely = int((mass[:kept] >= pick.min_p * mass[0]).sum())
        if likely < kept:
            kept, decided = likely, True
    return max(kept, 1) if decided else None
