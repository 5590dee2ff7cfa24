"""What a worker process is told when it starts. Plain data: it travels as JSON on the worker's command line."""

from __future__ import annotations

from typing import Literal

import msgspec

from forebay.core.activations import Activations
from forebay.kv.quota import Quotas

Dtype = Literal["bf16", "fp32"]
Quantize = Literal["auto", "none", "int4", "int8"]


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one worker loads its model and runs its steps."""

    model: str
    """`smollm2`, a .gguf file, a Hugging Face folder, or a hub name."""
    served_name: str | None = None
    """The name that clients see; by default the model's own."""
    dtype: Dtype = "bf16"
    """How weights are kept."""
    quantize: Quantize = "auto"
    """`auto`: weights that a GGUF file holds at 4 or 8 bits stay so; `int4`, `int8`: others are quantised at load too;
    `none`: all are held as `dtype`.
    """
    activations: Activations = "int8"
    """What products with quantised weights are computed in: `int8` rounds a layer's inputs to 8 bits first,
    `fp32` gives exactly what the dequantised weights give.
    """
    kv_dtype: Dtype | None = None
    """How the KV cache is kept; by default as the weights."""
    kv_memory: int | None = None
    """Bytes for KV pages; by default a quarter of the free memory, at most 8 GiB."""
    max_model_len: int | None = None
    """Tokens of prompt and answer together; by default the model's context, or what the KV memory holds."""
    target_itl_s: float = 0.1
    """A step with decode rows is filled with prefill up to this many seconds, as predicted."""
    low_memory: bool = False
    """Whether the default of `kv_memory` is a sixteenth of the free memory and at most 512 MiB."""
    max_step_tokens: int = 4096
    """Most prompt tokens in one step; activations take room for so many."""
    max_running: int = 64
    """Sequences that may hold pages at the same time."""
    max_waiting: int = 512
    """Requests that may wait; one more is refused."""
    prefix_cache: bool = True
    """Whether pages of ended sequences are kept for prompts that begin alike."""
    host_pool: int | None = 0
    """Bytes of memory for pages below the device; 0 for none, None for a quarter of what is free, at most 8 GiB."""
    host_pool_path: str | None = None
    """Where that memory comes from: a folder (such as a hugetlbfs mount), a file, or a device (/dev/dax0.0)."""
    host_pool_numa: int | None = None
    """The NUMA node that memory should come from."""
    cache_dir: str | None = None
    """Folder in which pages outlive the process; None for none. It needs a host pool."""
    cache_disk: int | None = None
    """Most bytes of disk there; by default a tenth of what is free, at most 32 GiB."""
    cache_required: bool = False
    """Whether a folder that can't be used is an error; else pages are then not kept on disk."""
    verify_kv: bool = False
    """Whether stored pages are checked again and again while they lie there."""
    retention: str = "chat"
    """Retention class of requests that name none."""
    retention_classes: dict[str, float] = {}
    """Retention classes beside or instead of the default ones: seconds by name."""
    host_quotas: Quotas = Quotas()
    """Most bytes of the host pool that each tenant may hold."""
    disk_quotas: Quotas = Quotas()
    """Most bytes of disk that each tenant may hold."""
    host_half_life_s: float = 60.0
    """How long unused a page in the host pool has to lie until it is worth half."""
    disk_half_life_s: float = 3600.0
    """The same on disk."""
    threads: int | None = None
    """Compute threads; by default one for each core, or fewer under a quota (`threads.py`)."""
    kernels: Literal["auto", "native", "torch"] = "auto"
    """Which kernels to run: `auto` takes native ones where they can be built."""


_LOW_STEP_TOKENS = 512
_LOW_HOST_POOL = 32 << 20


def spare_memory(options: WorkerOptions) -> WorkerOptions:
    """The same worker with as little memory as it can run with well; what was chosen (no default) stays.

    Plain weights become int4, a step reads at most 512 prompt tokens, the KV cache gets less by default, and the host
    pool is as large as moving pages to and from disk needs.
    """
    return msgspec.structs.replace(
        options,
        low_memory=True,
        quantize="int4" if options.quantize == "auto" else options.quantize,
        max_step_tokens=min(options.max_step_tokens, _LOW_STEP_TOKENS),
        host_pool=_LOW_HOST_POOL if options.host_pool is None else options.host_pool,
    )
