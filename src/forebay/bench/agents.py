"""Replays agent sessions against an engine in this process: conversations that grow by answers and tool results.

Tokens are random; what counts is which of them are read again. In the middle the engine is closed and started anew
with the same cache directory, as if the server had been restarted.
"""

from __future__ import annotations

import select
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from forebay.core.messages import TokenOutput
from forebay.core.request import GenerateRequest, SamplingParams
from forebay.engine import WorkerOptions
from forebay.engine.build import build_engine
from forebay.engine.engine import Engine

Report = Callable[[str, float], None]

_STALLED_S = 0.02


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """The sessions. The defaults fill about 6,000 of SmolLM2's 8,192 tokens."""

    agents: int = 8
    turns: int = 40
    system: int = 1200
    """Tokens of instructions and tools, the same for all agents."""
    tool: int = 80
    """Tokens of user text or tool result a turn."""
    answer: int = 32
    """Tokens of answer a turn."""
    samples: int = 4
    """Prompts that are sent without any cache, for comparison."""


@dataclass(slots=True)
class _Turn:
    prompt: int
    cached: int
    ttft_s: float


class Session:
    """Agents that take turns on one engine after another."""

    def __init__(self, plan: AgentPlan, vocabulary: int) -> None:
        self.plan = plan
        self.turns: list[_Turn] = []
        self._random = np.random.default_rng(7)
        self._vocabulary = vocabulary
        system = self._tokens(plan.system)
        self.texts = [list(system) for _ in range(plan.agents)]

    def play(self, engine: Engine, first: int, last: int, report: Report) -> None:
        """Turns [first, last) of all agents, one agent after the other, so that each waits for nobody."""
        for turn in range(first, last):
            for agent in range(self.plan.agents):
                report(f"turn {turn + 1} of {self.plan.turns}", turn / self.plan.turns)
                self.texts[agent] += self._tokens(self.plan.tool)
                done, answer = ask(engine, f"{turn}-{agent}", self.texts[agent], self.plan.answer)
                self.turns.append(done)
                self.texts[agent] += answer

    def _tokens(self, count: int) -> list[int]:
        return list(map(int, self._random.integers(0, self._vocabulary, count)))


def ask(engine: Engine, name: str, ids: list[int], tokens: int) -> tuple[_Turn, list[int]]:
    """One request from submission to its end. Raises ValueError when it fails."""
    sampling = SamplingParams(max_tokens=tokens, temperature=0.0)
    began = time.perf_counter()
    engine.submit(GenerateRequest(id=name, prompt_ids=list(ids), sampling=sampling, retention="agent"))
    first: TokenOutput | None = None
    ttft, answer = 0.0, list[int]()
    while True:
        for output in engine.step():
            if output.error is not None:
                raise ValueError(output.error)
            if first is None:
                first, ttft = output, time.perf_counter() - began
            answer += output.token_ids
            if output.finish_reason is not None:
                return _Turn(len(ids), first.cached_tokens, ttft), answer
        wait(engine)


def wait(engine: Engine) -> None:
    """What a worker does between two steps: go on at once, or sleep until a page move ends where only that helps."""
    if engine.stalled and engine.wake_fd is not None:
        select.select([engine.wake_fd], [], [], _STALLED_S)


def replay_agents(options: WorkerOptions, plan: AgentPlan, report: Report) -> dict[str, Any]:
    """The share of input tokens that came from the cache, and the median time to the first token with and without it.

    `options` must name a cache directory. Raises ForebayError when the engine can't start, ValueError when a prompt
    does not fit.
    """
    engine = build_engine(options, report)
    session = Session(plan, engine.info.vocab_size)
    half = plan.turns // 2
    try:
        session.play(engine, 0, half, report)
    finally:
        engine.close()
    engine = build_engine(options, report)
    try:
        session.play(engine, half, plan.turns, report)
        tiers = engine.stats().tiers
    finally:
        engine.close()
    cold = _without_cache(options, session, report)
    read = sum(turn.prompt for turn in session.turns)
    cached = sum(turn.cached for turn in session.turns)
    return {
        "cached_fraction": round(cached / read, 4),
        "ttft_ms_p50": round(1000 * statistics.median(turn.ttft_s for turn in session.turns), 1),
        "ttft_ms_p50_no_cache": round(1000 * statistics.median(cold), 1),
        "input_tokens": read,
        "cached_tokens": cached,
        "from_disk_after_restart": 0 if tiers is None else tiers.prompt_tokens_disk,
        "from_host_after_restart": 0 if tiers is None else tiers.prompt_tokens_host,
        "agents": plan.agents,
        "turns": plan.turns,
    }


def _without_cache(options: WorkerOptions, session: Session, report: Report) -> list[float]:
    """Seconds to the first token of prompts spread over the sessions, on an engine that keeps nothing."""
    plain = msgspec.structs.replace(options, prefix_cache=False, host_pool=0, cache_dir=None)
    engine = build_engine(plain, report)
    lengths = sorted(turn.prompt for turn in session.turns)
    chosen = [lengths[(2 * i + 1) * len(lengths) // (2 * session.plan.samples)] for i in range(session.plan.samples)]
    found = []
    try:
        for i, length in enumerate(chosen):
            report("without a cache", i / len(chosen))
            found.append(ask(engine, f"cold-{i}", session.texts[0][:length], 1)[0].ttft_s)
    finally:
        engine.close()
    return found
