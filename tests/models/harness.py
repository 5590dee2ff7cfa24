"""Runs a `Model` without an engine: steps and pages made by hand. Not a scheduler; pages are never given back."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch
from torch import Tensor

from forebay.kernels import PAGE_TOKENS, StepBatch, Weight
from forebay.models import Model


@dataclass
class HandSequence:
    """One sequence: its ids so far, how many are computed, its pages, and the logits at every computed position."""

    ids: list[int]
    chunk: int
    """Most tokens of it in one step."""
    computed: int = 0
    pages: list[int] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)

    def next_tokens(self) -> list[int]:
        return self.ids[self.computed : self.computed + self.chunk]


class HandRunner:
    """A model with a page store, whose pages are dealt out in shuffled order so that a wrong page shows."""

    def __init__(
        self, model: Model, pages: int = 128, kv_dtype: torch.dtype = torch.float32, *, whole: bool = False
    ) -> None:
        """`whole` takes the model's one call from ids to logits."""
        self.model = model
        self._whole = whole
        self.layout = model.layout(kv_dtype)
        self.store = self.layout.allocate(pages)
        self.store.fill_(float("nan"))  # whatever is read before it is written spoils the result
        self._free = list(range(pages))
        random.Random(3).shuffle(self._free)

    def step(self, sequences: list[HandSequence]) -> None:
        """Compute the next chunk of each sequence in one step, and keep its logits [chunk, vocab] on it."""
        chunks = [sequence.next_tokens() for sequence in sequences]
        batch = self._batch(sequences, chunks)
        ids = _int32([token for chunk in chunks for token in chunk])
        if self._whole:
            logits = self.model.decode(ids, batch, self.store, self.layout)
        else:
            logits = self.model.logits(self.model.forward(ids, batch, self.store, self.layout))
        for sequence, chunk, rows in zip(sequences, chunks, torch.split(logits, [len(c) for c in chunks]), strict=True):
            sequence.computed += len(chunk)
            sequence.logits.append(rows)

    def _batch(self, sequences: list[HandSequence], chunks: list[list[int]]) -> StepBatch:
        positions: list[int] = []
        slots: list[int] = []
        starts, context = [0], []
        for sequence, chunk in zip(sequences, chunks, strict=True):
            end = sequence.computed + len(chunk)
            while len(sequence.pages) * PAGE_TOKENS < end:
                sequence.pages.append(self._free.pop())
            at = range(sequence.computed, end)
            positions += at
            slots += [sequence.pages[p // PAGE_TOKENS] * PAGE_TOKENS + p % PAGE_TOKENS for p in at]
            starts.append(starts[-1] + len(chunk))
            context.append(end)
        width = max(len(sequence.pages) for sequence in sequences)
        table = torch.zeros((len(sequences), width), dtype=torch.int32)
        for row, sequence in enumerate(sequences):
            table[row, : len(sequence.pages)] = _int32(sequence.pages)
        return StepBatch(_int32(positions), _int32(starts), _int32(context), table, _int32(slots))


def greedy(runner: HandRunner, prompt: list[int], steps: int, chunks: tuple[int, ...]) -> list[HandSequence]:
    """Continue `prompt` by `steps` tokens once for each prefill chunk size, all in the same steps as they come.

    Short chunks still prefill while long ones decode already. Returns a sequence a chunk size, with prompt and answer
    in `ids` and, in `logits`, one tensor a step.
    """
    sequences = [HandSequence(list(prompt), chunk) for chunk in chunks]
    while live := [s for s in sequences if len(s.ids) < len(prompt) + steps]:
        runner.step(live)
        for sequence in live:
            if sequence.computed == len(sequence.ids):
                sequence.ids.append(int(sequence.logits[-1][-1].argmax()))
    return sequences


def _int32(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def matrices(model: Model) -> list[Weight]:
    """A model's matrices in its order: the embedding; qkv, output, gate+up and down of each layer; an untied head."""
    weights = model._weights
    layers = [matrix for one in weights.layers for matrix in (one.qkv, one.output, one.gate_up, one.down)]
    return [weights.embed, *layers, *([] if weights.head is weights.embed else [weights.head])]
