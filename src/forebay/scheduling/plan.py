"""What the scheduler hands out and takes back: the plan of one step and what came of it. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from forebay.core.request import FinishReason
from forebay.scheduling.sequence import Sequence


class Row(NamedTuple):
    """One sequence's part of a step: compute the KV of tokens [start, start + tokens) of its `all_ids`."""

    sequence: Sequence
    start: int
    tokens: int
    samples: int
    """Tokens to draw from the last token's logits: 0 (none wanted), 1, or n > 1 on the step that ends the prefill of
    a request with n choices (for choices 0 to n - 1, from the same logits)."""
    decode: bool
    """The one token is the newest of an answer in progress; otherwise the row is a prefill chunk."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step, decode rows first. Hand it back by `Scheduler.complete` or `Scheduler.fail` before the next plan."""

    rows: list[Row]
    copies: list[tuple[int, int]]
    """Whole pages (source, destination) to copy before anything is written; no page is both."""
    predicted_s: float
    prefill_tokens: int
    decode_rows: int
    attention: int
    """Sum over all tokens of the tokens that each sees, itself included."""
    preempted: list[Sequence]
    """Put back into the queue while this was planned; they go on later where they were."""


class SequenceUpdate(NamedTuple):
    """What one step added to one sequence."""

    sequence: Sequence
    token_ids: list[int]
    """New tokens; a stop token that ended the answer is the last."""
    finish_reason: FinishReason | None = None
    error: str | None = None
    """Why it ended, when `finish_reason` is ERROR."""
