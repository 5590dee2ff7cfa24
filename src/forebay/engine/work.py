"""What a step has to do at least: floating-point operations and bytes read from memory. It counts and measures nothing.

Over the seconds of the steps and the machine's limits (`kernels/limits.py`) that says how well the machine is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from forebay.core.messages import WorkerStats
from forebay.kernels.limits import MachineLimits
from forebay.models import ModelConfig
from forebay.scheduling import StepPlan


@dataclass(frozen=True, slots=True)
class ModelCost:
    """What one model costs."""

    layer_flops: int
    """Operations of one token in the layers' matrix products."""
    head_flops: int
    """Operations of one token in the product with the output head."""
    attention_flops: int
    """Operations of one token for each token that it sees."""
    weight_bytes: int
    """Bytes of weights that a step reads: all but an untied embedding."""
    kv_token_bytes: int
    """Bytes of K and V of one token."""

    @classmethod
    def of(cls, config: ModelConfig, weight_bytes: int, kv_number_bytes: int) -> ModelCost:
        """`weight_bytes` is what a step reads; `kv_number_bytes` are those of one number in the KV cache."""
        mixed = config.heads * config.head_dim
        qkv = mixed + 2 * config.kv_heads * config.head_dim
        return cls(
            layer_flops=2 * config.layers * config.hidden_size * (qkv + mixed + 3 * config.intermediate_size),
            head_flops=2 * config.vocab_size * config.hidden_size,
            attention_flops=4 * config.layers * mixed,
            weight_bytes=weight_bytes,
            kv_token_bytes=2 * config.layers * config.kv_heads * config.head_dim * kv_number_bytes,
        )

    def flops(self, plan: StepPlan) -> int:
        """Operations of a step; norms, rotary embedding and sampling count as nothing."""
        tokens = plan.prefill_tokens + plan.decode_rows
        sampled = sum(1 for row in plan.rows if row.samples)
        return tokens * self.layer_flops + sampled * self.head_flops + plan.attention * self.attention_flops

    def read_bytes(self, plan: StepPlan) -> int:
        """Bytes that a step reads at least: the weights once, and each row's K and V once."""
        return self.weight_bytes + sum(row.start + row.tokens for row in plan.rows) * self.kv_token_bytes

    def decode_bytes(self, rows: int, context: float) -> float:
        """Bytes that a step of `rows` decoding sequences of `context` tokens reads at least."""
        return self.weight_bytes + rows * context * self.kv_token_bytes


class Work:
    """What an engine has done since its start, beside what its machine can do."""

    def __init__(self, cost: ModelCost, limits: MachineLimits) -> None:
        self.cost = cost
        self._limits = limits
        self._flops = self._bytes = 0
        self._seconds = 0.0

    def add(self, plan: StepPlan, seconds: float) -> None:
        """A step is done."""
        self._flops += self.cost.flops(plan)
        self._bytes += self.cost.read_bytes(plan)
        self._seconds += seconds

    def add_to(self, stats: WorkerStats) -> None:
        """Fill in the fields that are ours."""
        stats.flops, stats.bytes_read, stats.busy_s = float(self._flops), float(self._bytes), self._seconds
        stats.gemm_gflops, stats.read_gbps = self._limits.gemm_gflops, self._limits.read_gbps
