"""The scheduler's limits and targets. Not the engine's options: those that concern it are copied in here by the
engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """What the scheduler aims at. Raises ValueError for values that contradict each other."""

    max_model_len: int
    """Tokens of prompt and answer together; the KV book must have room for one such sequence."""
    max_running: int = 64
    """Sequences that hold pages and take part in steps."""
    max_waiting: int = 1024
    """Requests that wait; one more is refused with OverloadedError. Preempted sequences may exceed it."""
    target_itl_s: float = 0.1
    """Predicted seconds that a step with decode rows may take."""
    prefill_share: float = 1 / 3
    """Share of a step's predicted time that prefill may take even when decode rows alone come near the target."""
    max_step_s: float = 0.5
    """Predicted seconds that a step without decode rows may take: about how long a new request waits for its first
    step."""
    max_step_tokens: int = 4096
    """Prefill tokens in one step."""
    min_chunk: int = 256
    """Prefill tokens of one sequence in one step: at least so many, unless its prompt ends or decode rows leave no
    time."""
    max_chunk: int = 2048
    """Prefill tokens of one sequence in one step: at most."""
    class_bounds: tuple[int, ...] = (256, 1024, 4096)
    """Length class i holds prompts with at most `class_bounds[i]` uncached tokens; one more class holds the rest."""
    class_share: float = 1 / 8
    """Prefill tokens that a class earns for each token that only shorter classes got while it waited."""
    retention: str = "chat"
    """Retention class of what requests that name none leave in the cache."""
    aging_s: float = 10.0
    """Seconds without service that raise a sequence by one priority."""

    def __post_init__(self) -> None:
        if min(self.max_model_len, self.max_running, self.max_waiting, self.min_chunk) < 1:
            raise ValueError("max_model_len, max_running, max_waiting and min_chunk must be at least 1")
        if self.min_chunk % 16 or self.max_chunk % 16 or not self.min_chunk <= self.max_chunk <= self.max_step_tokens:
            raise ValueError("min_chunk <= max_chunk <= max_step_tokens must hold, and chunks be multiples of 16")
        if min(self.target_itl_s, self.max_step_s, self.aging_s) <= 0:
            raise ValueError("target_itl_s, max_step_s and aging_s must be above 0")
        if not (0 < self.prefill_share < 1 and 0 < self.class_share <= 1):
            raise ValueError("prefill_share and class_share must lie between 0 and 1")
        if list(self.class_bounds) != sorted(set(self.class_bounds)):
            raise ValueError("class_bounds must rise")
