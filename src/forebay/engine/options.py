"""What a worker process is told when it starts. Plain data: it travels as JSON on the worker's command line."""

from __future__ import annotations

from typing import Literal

import msgspec

Dtype = Literal["bf16", "fp32"]


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one worker loads its model and runs its steps."""

    model: str
    """`smollm2`, a .gguf file, a Hugging Face folder, or a hub name."""
    served_name: str | None = None
    """The name that clients see; by default the model's own."""
    dtype: Dtype = "bf16"
    """How weights are kept."""
    kv_dtype: Dtype | None = None
    """How the KV cache is kept; by default as the weights."""
    kv_memory: int | None = None
    """Bytes for KV pages; by default a quarter of the free memory, at most 8 GiB."""
    max_model_len: int | None = None
    """Tokens of prompt and answer together; by default the model's context, or what the KV memory holds."""
    target_itl_s: float = 0.05
    """A step with decode rows is filled with prefill up to this many seconds, as predicted."""
    max_running: int = 64
    """Sequences that may hold pages at the same time."""
    max_waiting: int = 512
    """Requests that may wait; one more is refused."""
    prefix_cache: bool = True
    """Whether pages of ended sequences are kept for prompts that begin alike."""
    threads: int | None = None
    """Compute threads; by default the cores this process may use."""
    kernels: Literal["auto", "native", "torch"] = "auto"
    """Which kernels to run: `auto` takes native ones where they can be built."""
