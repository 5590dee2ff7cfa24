"""The start-up report of `forebay serve`: what runs, with which memory, and how to try it. Text only."""

from __future__ import annotations

from forebay import __version__
from forebay.cli.console import binary_size
from forebay.cluster import WorkerOptions
from forebay.core.messages import ModelInfo, TierStats
from forebay.kv import PAGE_TOKENS
from forebay.models import ModelConfig


def start_report(
    model: ModelInfo,
    config: ModelConfig,
    options: WorkerOptions,
    url: str,
    *,
    keys: int,
    tiers: TierStats | None = None,
) -> str:
    """The lines that are printed once the server can answer.

    `url` is where clients on this machine reach the server, `keys` the number of API keys, `tiers` what there is below
    the device.
    """
    access = f"{keys} API key{'s' * (keys != 1)}" if keys else "no API key needed"
    slow = "" if model.kernels != "torch" else "; slow: the native ones are not built, see forebay doctor"
    tokens = kv_tokens(model, config, options)
    lines = (
        f"forebay {__version__} serves {model.name}",
        f"  model     {model.architecture}, {count(model.parameters)} parameters, {options.dtype}: "
        f"{binary_size(model.weight_bytes)} of weights",
        f"  kernels   {model.kernels}{slow}",
        *([f"  threads   {model.threads}"] if model.threads else []),
        *([f"  memory    low: {_low_memory(options)}"] if options.low_memory else []),
        f"  context   {model.max_model_len:,} tokens",
        f"  KV cache  {binary_size(model.kv_bytes)}: {tokens:,} tokens in pages of {PAGE_TOKENS}",
        *_tier_lines(model, options, tiers),
        f"  address   {url} ({access}; Ctrl-C stops)",
        "Try it:",
        _example(model.name, url, with_key=keys > 0),
    )
    return "\n".join(lines)


def _low_memory(options: WorkerOptions) -> str:
    """What --low-memory has set beside KV cache and host pool, which have lines of their own."""
    return f"--quantize {options.quantize}, at most {options.max_step_tokens} prompt tokens in a step"


def _tier_lines(model: ModelInfo, options: WorkerOptions, tiers: TierStats | None) -> list[str]:
    """Host pool, disk, and how long pages stay unread."""
    if tiers is None:
        return ["  host pool none: what leaves the KV cache is computed again"]
    size, tokens = tiers.host_pages_total * tiers.page_bytes, tiers.host_pages_total * PAGE_TOKENS
    lines = [f"  host pool {binary_size(size)}: {tokens:,} tokens"]
    if not tiers.disk_bytes_limit:
        return [*lines, "  disk      none: cached pages end with the server"]
    lines.append(
        f"  disk      at most {binary_size(tiers.disk_bytes_limit)} in {options.cache_dir}: "
        f"{tiers.disk_pages:,} pages found, {binary_size(tiers.disk_bytes)}"
    )
    kept = [f"{name} {_duration(seconds)}" for name, seconds in model.retention_classes.items() if seconds]
    return [*lines, f"  kept      {', '.join(kept)} without being read; {options.retention} unless asked otherwise"]


def _duration(seconds: float) -> str:
    """86400 → "1 d"."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def kv_tokens(model: ModelInfo, config: ModelConfig, options: WorkerOptions) -> int:
    """How many tokens the KV memory holds: K and V of every layer, 2 or 4 bytes a number."""
    number_bytes = 4 if (options.kv_dtype or options.dtype) == "fp32" else 2
    page_bytes = PAGE_TOKENS * 2 * config.layers * config.kv_heads * config.head_dim * number_bytes
    return model.kv_bytes // page_bytes * PAGE_TOKENS


def count(number: int) -> str:
    """1_234_000_000 → "1.23 billion"."""
    return f"{number / 1e9:.2f} billion" if number >= 1e9 else f"{number / 1e6:.1f} million"


def _example(model: str, url: str, *, with_key: bool) -> str:
    key = "-H 'authorization: Bearer YOUR_KEY' " if with_key else ""
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Why is the sky blue?"}}]}}'
    return f"  curl {url}/v1/chat/completions {key}-H 'content-type: application/json' \\\n    -d '{body}'"


def local_url(host: str, port: int) -> str:
    """The address that a client on this machine uses for a server that listens on `host`."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 (it is compared, not bound)
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
