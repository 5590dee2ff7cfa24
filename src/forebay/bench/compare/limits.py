"""What a row could reach at most on this machine with our weights, from its measured limits. Pure; rough by intent.

Prefill is bound by its floating-point operations, decode by those or by reading weights and KV from memory, whichever
takes longer. Operations are those of the matrix products and of attention over the tokens that each token sees, all at
the rate of the machine's best matrix product, so that a prefill's share of its limit is what is called MFU (PaLM,
appendix B). A load over HTTP is the two after each other, its prompts read one by one, so that half of the clients wait
for half of them. Sampling, HTTP and Python count as nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from forebay.bench.compare.rows import LOW_MEMORY, MEMORY, SERVING, SERVING_ITL, SERVING_TTFT, Kind, Load, Row


@dataclass(frozen=True, slots=True)
class Bounds:
    """The machine's limits and what our model costs."""

    gemm_gflops: float
    """10^9 operations a second of the best matrix product of those that our side computes with."""
    float_gflops: float
    """The same of floating-point numbers, whatever our side computes with."""
    read_gbps: float
    """10^9 bytes a second read from memory."""
    layer_flops: float
    """Operations of one token in the layers' matrix products."""
    head_flops: float
    """Operations of one token in the product with the output head."""
    attention_flops: float
    """Operations of one token for each token that it sees."""
    read_bytes: float
    """Bytes of weights that one decode step reads."""
    weight_bytes: float
    """Bytes of all weights in memory."""
    kv_token_bytes: float
    """Bytes of K and V of one token."""


def limit(row: Row, bounds: Bounds, load: Load) -> float | None:
    """The best possible value of the row, in its unit; None where no limit is known (the start of a process)."""
    if row.kind == Kind.PREFILL:
        return prefill_rate(bounds, row.tokens)
    if row.kind == Kind.DECODE:
        return decode_rate(bounds, row.sequences, row.context + row.tokens / 2)
    clients = max(load.clients)
    decode = decode_rate(bounds, clients, load.input_tokens + load.output_tokens / 2)
    prompt_s = load.input_tokens / prefill_rate(bounds, load.input_tokens)
    request_s = prompt_s + load.output_tokens / decode
    memory = (bounds.weight_bytes + load.cached_tokens * bounds.kv_token_bytes) / (1 << 20)
    return {
        SERVING: load.output_tokens / request_s,
        SERVING_ITL: 1000 * clients / decode,
        SERVING_TTFT: 1000 * prompt_s * (clients + 1) / 2,
        MEMORY: memory,
        LOW_MEMORY: memory,
    }.get(row.name)


def without_attention(bounds: Bounds) -> Bounds:
    """The same with attention's operations left out."""
    return replace(bounds, attention_flops=0.0)


def of_floats(bounds: Bounds) -> Bounds:
    """The same with every product in floating-point numbers."""
    return replace(bounds, gemm_gflops=bounds.float_gflops)


def prefill_rate(bounds: Bounds, tokens: int) -> float:
    """Tokens a second of a prompt of so many; one token sees half of them on average."""
    flops = bounds.layer_flops + bounds.attention_flops * (tokens + 1) / 2
    return bounds.gemm_gflops * 1e9 / flops


def decode_rate(bounds: Bounds, sequences: int, context: float) -> float:
    """Tokens a second of `sequences` together, each with `context` tokens behind it."""
    read_s = (bounds.read_bytes + sequences * context * bounds.kv_token_bytes) / (bounds.read_gbps * 1e9)
    flops = bounds.layer_flops + bounds.head_flops + bounds.attention_flops * context
    return sequences / max(read_s, sequences * flops / (bounds.gemm_gflops * 1e9))
