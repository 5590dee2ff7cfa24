"""The model with its page store: carries out the rows of a step plan and gives logits. It decides nothing."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from forebay.core.messages import TokenLogprobs
from forebay.engine.batch import build_batch
from forebay.engine.device_pages import DevicePages
from forebay.engine.logprobs import token_logprobs
from forebay.kernels import Kernels, KvLayout
from forebay.models import Model
from forebay.scheduling import Row, StepPlan

_LOGPROB_ROWS = 64
"""Prompt positions whose logits are in memory at the same time."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step computed."""

    logits: Tensor
    """fp32 [M, vocabulary]: one row for each plan row that samples, in plan order."""
    prompt_logprobs: dict[int, list[TokenLogprobs]]
    """Plan row → logprobs of the prompt tokens at positions start + 1 to start + tokens (fewer at the prompt's end)."""


class ModelRunner:
    """Computes on a page store that page moves may change between its steps."""

    def __init__(self, model: Model, kernels: Kernels, layout: KvLayout, pages: DevicePages) -> None:
        self._model = model
        self.kernels = kernels
        self._layout = layout
        self._pages = pages

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> StepResult:
        """Copy the plan's pages, then compute all rows in one forward pass."""
        self._pages.copy(plan.copies)
        self._pages.own(plan.rows)
        ids, batch = build_batch(plan.rows, self._pages.places)
        if all(row.tokens == 1 and row.samples for row in plan.rows):
            return StepResult(self._model.decode(ids, batch, self._pages.store, self._layout), {})
        return self._ragged(plan, self._model.forward(ids, batch, self._pages.store, self._layout))

    def _ragged(self, plan: StepPlan, hidden: Tensor) -> StepResult:
        """Logits where rows sample, and those of prompts that were asked for."""
        ends = list(accumulate(row.tokens for row in plan.rows))
        last = [end - 1 for row, end in zip(plan.rows, ends, strict=True) if row.samples]
        logits = self._model.logits(hidden[last]) if last else torch.empty((0, self._model.config.vocab_size))
        prompt_logprobs = {
            index: self._prompt_logprobs(row, hidden[end - row.tokens : end])
            for index, (row, end) in enumerate(zip(plan.rows, ends, strict=True))
            if wants_prompt_logprobs(row)
        }
        return StepResult(logits, prompt_logprobs)

    def _prompt_logprobs(self, row: Row, hidden: Tensor) -> list[TokenLogprobs]:
        top = row.sequence.sampling.prompt_logprobs or 0
        targets = row.sequence.prompt_ids[row.start + 1 : row.start + row.tokens + 1]
        found: list[TokenLogprobs] = []
        for begin, piece in _pieces(targets):
            found += token_logprobs(self._model.logits(hidden[begin : begin + len(piece)]), piece, top)
        return found


def wants_prompt_logprobs(row: Row) -> bool:
    """Whether the row computes prompt positions whose logprobs were asked for (not when a resumed answer is
    recomputed).
    """
    sequence = row.sequence
    return (
        sequence.sampling.prompt_logprobs is not None
        and not sequence.output_ids
        and row.start + 1 < len(sequence.prompt_ids)
    )


def _pieces(targets: Seq[int]) -> list[tuple[int, list[int]]]:
    return [(i, list(targets[i : i + _LOGPROB_ROWS])) for i in range(0, len(targets), _LOGPROB_ROWS)]
