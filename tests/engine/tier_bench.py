"""An engine with lower tiers that tests drive step by step, and what it has answered."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.core.messages import TierStats, TokenOutput
from forebay.core.request import GenerateRequest, SamplingParams
from forebay.engine import WorkerOptions
from forebay.engine.build import build_engine
from forebay.engine.engine import Engine

PAGE = 4096 * 2
"""Bytes of the tiny model's page in fp32."""
ANSWER = 40


def prompt(name: str, tokens: int) -> list[int]:
    return random.Random(name).choices(range(3, 256), k=tokens)


@dataclass
class Bench:
    """An engine and what it has answered."""

    engine: Engine
    tokens: dict[str, list[int]] = field(default_factory=dict)
    first: dict[str, TokenOutput] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def submit(self, name: str, ids: list[int], max_tokens: int = ANSWER, **options: Any) -> None:
        sampling = SamplingParams(max_tokens=max_tokens, temperature=options.pop("temperature", 0.0), seed=7)
        self.tokens[name] = []
        self.engine.submit(GenerateRequest(id=name, prompt_ids=ids, sampling=sampling, **options))

    def step(self) -> None:
        for output in self.engine.step():
            assert output.error is None, output.error
            self.first.setdefault(output.request_id, output)
            self.tokens[output.request_id] += output.token_ids
            if output.finish_reason is not None:
                self.ended.add(output.request_id)

    def run(self, *names: str, steps: int = 2000) -> None:
        """Step until these have ended; a step that finds nothing to do leaves the other threads some time."""
        for _ in range(steps):
            if self.ended.issuperset(names):
                return
            self.step()
            if self.engine.stalled:
                time.sleep(0.001)
        raise AssertionError(f"{names} have not ended after {steps} steps")

    def ask(self, name: str, ids: list[int], **options: Any) -> list[int]:
        self.submit(name, ids, **options)
        self.run(name)
        return self.tokens[name]

    def settle(self, tails: int = 0) -> None:
        """Until nothing is copied any more and all that belongs on disk is there: all but `tails` pages of the host
        pool, partly filled ones of sequences that were preempted."""
        for _ in range(5000):
            self.step()
            stats = self.tiers
            if not (stats.pages_writing or stats.pages_loading) and self._spilled(stats, tails):
                return
            time.sleep(0.001)
        raise AssertionError(f"the copies do not end: {self.tiers}")

    @property
    def tiers(self) -> TierStats:
        found = self.engine.stats().tiers
        assert found is not None
        return found

    def forget_device(self, pages: int) -> None:
        """Fill all device pages with something else."""
        for i in range(2):
            name = f"flush {len(self.tokens)} {i}"
            self.ask(name, prompt(name, pages * 16 - 20), max_tokens=2)
        self.settle()

    @staticmethod
    def _spilled(stats: TierStats, tails: int) -> bool:
        return (
            not stats.disk_bytes_limit
            or stats.disk_pages >= stats.host_pages - tails
            or stats.counters["spills_failed"] > 0
        )


@contextmanager
def bench(
    model: Path, pages: int = 20, host_pages: int = 200, *, page_bytes: int = PAGE, **options: Any
) -> Iterator[Bench]:
    """An engine whose pages are all free at the end; by default of the tiny model in fp32."""
    more: dict[str, Any] = {"dtype": "fp32", "threads": 1} | options
    wanted = WorkerOptions(
        model=str(model),
        kv_memory=pages * page_bytes,
        max_model_len=16 * pages,
        host_pool=host_pages and host_pages * (page_bytes + 256) + 8192,
        **more,
    )
    engine = build_engine(wanted, lambda stage, share: None)
    try:
        made = Bench(engine)
        yield made
        assert not engine.check(1).problems
        assert engine.check(2).pages_used == 0
    finally:
        engine.close()
