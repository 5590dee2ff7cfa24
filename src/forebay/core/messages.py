"""The typed messages between the API's process and a worker's: the only thing that couples them.

Encoded as msgpack by msgspec with the class name as tag. Every field is plain data, so a message means the same on
another machine. The order of messages on one connection is kept; a worker answers `Submit` only by `StepOutputs`.
"""

from __future__ import annotations

import msgspec

from forebay.core.activations import Activations
from forebay.core.request import FinishReason, GenerateRequest


class Submit(msgspec.Struct, tag=True):
    """To a worker: start this request."""

    request: GenerateRequest


class Abort(msgspec.Struct, tag=True):
    """To a worker: forget these requests and free what they hold before the next step. Unknown ids are ignored."""

    request_ids: list[str]


class CheckIntegrity(msgspec.Struct, tag=True):
    """To a worker: recount every page and answer with `IntegrityReport`."""

    id: int


class MarkPublic(msgspec.Struct, tag=True):
    """To a worker: prompts that begin with these tokens share the pages of them, whichever tenant sends them."""

    token_ids: list[int]


class Shutdown(msgspec.Struct, tag=True):
    """To a worker: end now; running requests get no further output."""


ToWorker = Submit | Abort | CheckIntegrity | MarkPublic | Shutdown


class TopLogprob(msgspec.Struct, frozen=True, array_like=True):
    """One candidate token and its natural-log probability."""

    token_id: int
    logprob: float


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """The logprob of the token that stands at a position, and the most likely ones there, best first."""

    token_id: int
    logprob: float
    top: list[TopLogprob]


class TokenOutput(msgspec.Struct, kw_only=True):
    """What one step added to one choice of one request."""

    request_id: str
    index: int = 0
    """Which of the request's `n` choices."""
    token_ids: list[int] = []
    """New tokens in order; a stop token that ended the answer is the last."""
    logprobs: list[TokenLogprobs] | None = None
    """As many as `token_ids` when asked for."""
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    """With the first output of choice 0 when asked for: one a prompt token, None for the first."""
    cached_tokens: int = 0
    """Prompt tokens read from the prefix cache instead of computed (set on the first output of a choice)."""
    queued_s: float | None = None
    """Seconds from arrival in the worker to the first scheduled chunk (set on the first output of a choice)."""
    cached_host: int = 0
    """Of `cached_tokens`: those that came from the host pool."""
    cached_disk: int = 0
    """Of `cached_tokens`: those that came from disk."""
    finish_reason: FinishReason | None = None
    error: str | None = None


class StepOutputs(msgspec.Struct, tag=True):
    """From a worker: everything that one step produced, in one message."""

    outputs: list[TokenOutput]


class StepSample(msgspec.Struct, frozen=True, array_like=True):
    """One step's cost, as predicted and as measured, in seconds, and what it computed."""

    predicted_s: float
    actual_s: float
    prefill_tokens: int
    decode_tokens: int


class TierStats(msgspec.Struct, kw_only=True):
    """What the tiers below the device hold now, and what they have done since the worker started."""

    page_bytes: int = 0
    host_pages: int = 0
    host_pages_total: int = 0
    host_pages_pinned: int = 0
    """Kept for preempted sequences."""
    disk_pages: int = 0
    disk_bytes: int = 0
    disk_bytes_limit: int = 0
    pages_writing: int = 0
    """Device pages that are being copied down."""
    pages_loading: int = 0
    """Device pages that are being filled."""
    urgent_saves: int = 0
    """Pages copied down because their sequence was preempted."""
    urgent_saves_failed: int = 0
    dropped: int = 0
    """Pages lost with preempted SPECULATIVE_DRAFT sequences."""
    restored: int = 0
    """Preempted sequences that came back with pages from below."""
    loads: int = 0
    """Loads (not pages) that ended."""
    loads_short: int = 0
    """Loads (not pages) that brought fewer pages than were asked for."""
    prompt_tokens_host: int = 0
    """Prompt tokens that came from the host pool."""
    prompt_tokens_disk: int = 0
    tenants: dict[str, tuple[int, int]] = {}
    """Bytes of each tenant's pages in the host pool and on disk; "" stands for public ones."""
    urgent_s: list[float] = []
    """Seconds of each preemption's copies since the last message (bounded)."""
    load_s: list[float] = []
    """Seconds of each load since the last message (bounded)."""
    counters: dict[str, float] = {}
    """Pages, bytes and seconds of the moves, evictions by reason, corrupt pages: `fabric.TierCounters` by name."""


class WorkerStats(msgspec.Struct, tag=True, kw_only=True):
    """From a worker, at most a few times a second: gauges as of now, counters since the worker started."""

    running: int = 0
    waiting: int = 0
    waiting_by_class: list[int] = []
    """Waiting sequences in each length class, shortest first."""
    pages_total: int = 0
    pages_used: int = 0
    """Pages held by live sequences."""
    pages_cached: int = 0
    """Pages held only by the prefix cache; they are given up when room is wanted."""
    prompt_tokens_computed: int = 0
    prompt_tokens_cached: int = 0
    generation_tokens: int = 0
    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    preemptions: int = 0
    preemptions_by: dict[str, int] = {}
    """The same by "reason/priority class"."""
    recomputed_by: dict[str, int] = {}
    """Tokens that preempted sequences had to compute again, by reason."""
    tiers: TierStats | None = None
    """None where the device is the only tier."""
    evictions: int = 0
    flops: float = 0.0
    """Floating-point operations that the steps had to do at least."""
    bytes_read: float = 0.0
    """Bytes of weights and KV that the steps had to read from memory at least."""
    busy_s: float = 0.0
    """Seconds that the steps took."""
    gemm_gflops: float = 0.0
    """10^9 operations a second of this machine's fastest matrix product; 0: not measured."""
    read_gbps: float = 0.0
    """10^9 bytes a second that this machine reads from memory; 0: not measured."""
    steps: list[StepSample] = []
    """The steps since the last message (bounded; older ones are dropped first)."""


class IntegrityReport(msgspec.Struct, tag=True, kw_only=True):
    """From a worker: the answer to `CheckIntegrity`; `problems` is empty when every page is accounted for."""

    id: int
    problems: list[str]
    pages_total: int
    pages_used: int
    pages_cached: int
    sequences: int


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the API must know of the model that a worker runs."""

    name: str
    architecture: str
    vocab_size: int
    max_model_len: int
    """Tokens of prompt and answer together: the model's context, or less where the KV memory holds less."""
    fingerprint: str
    """Hex digest that names weights, dtypes and KV layout; the root of every page id."""
    parameters: int
    weight_bytes: int
    kv_bytes: int
    retention_classes: dict[str, float] = {}
    """Seconds that pages stay unread, by retention class."""
    kernels: str
    """Which kernels run, for example `native-avx2`, `native-avx2-int8` or `torch`."""
    activations: Activations = "fp32"
    """How far a layer's inputs are rounded; fp32 also where nothing is gained by it."""
    threads: str = ""
    """How many threads compute, why, and whether they are pinned; in words."""


class Progress(msgspec.Struct, tag=True, frozen=True):
    """From a worker while it starts, or while it ends: what it does, and how much of it is done (0 to 1)."""

    stage: str
    fraction: float


FLUSHING = "writing cached pages to disk"
"""The stage of `Progress` that a worker sends while it ends, as long as it has pages to write."""


class Ready(msgspec.Struct, tag=True):
    """From a worker, once: the model is loaded and requests may come."""

    model: ModelInfo
    tiers: TierStats | None = None
    """The tiers below the device as they were found; None where there are none."""


class WorkerFailed(msgspec.Struct, tag=True):
    """From a worker, as its last message: it can't start or go on. `kind` is the class name of the error."""

    kind: str
    message: str


FromWorker = Progress | Ready | StepOutputs | WorkerStats | IntegrityReport | WorkerFailed
