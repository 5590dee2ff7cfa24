"""`forebay bench preempt`, `restore`, `agent-replay` and `trace-replay`. The measuring is in `forebay.bench`."""

from __future__ import annotations

import json as json_module
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from forebay.cli import console
from forebay.cli.options import DEFAULT_MODEL, Dtype, Flag, KernelChoice, Positive, UsageError
from forebay.core.errors import ConfigError


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class MoveBenchOptions:
    """How the engine runs whose pages are moved."""

    dtype: Dtype = "bf16"
    """How weights and KV cache are kept in memory."""
    threads: Positive | None = None
    """Compute threads; by default the cores that this process may use."""
    kernels: KernelChoice = "auto"
    """Which kernels compute: auto takes native ones where they can be built, else the slower torch ones."""
    json: Flag = False
    """Print the report as JSON."""


RANDOM = "random"
_ANSWER_ROOM = 128
"""Tokens of context beside the victim's prompt."""
_MOVE = MoveBenchOptions()
Counts = Annotated[tuple[Positive, ...], Parameter(consume_multiple=True)]


def preempt(
    model: str = DEFAULT_MODEL,
    *,
    victim: Counts = (1000, 2000, 4000, 8000),
    rounds: Positive = 50,
    options: MoveBenchOptions = _MOVE,
) -> int:
    """Measure how soon a critical request can start its prefill when it has to preempt a running answer.

    Parameters
    ----------
    model
        As for forebay serve; or "random", a tiny model of random weights whose context is as long as is asked for.
    victim
        Lengths of the preempted sequence, in tokens.
    rounds
        Preemptions of each.
    """
    from forebay.bench.tiers import measure_preemption

    with _folder() as folder, console.stages("starting the engine") as report:
        base = _options(_model(model, folder, max(victim)), options, max_running=1, target_itl_s=60.0)
        figures = _measured(lambda: measure_preemption(base, victim, rounds, report))
    rows = {"all": figures["preempt_ms"], **figures["by_victim_tokens"]}
    lines = ["Preempting a decoding sequence, by its tokens:"]
    lines += [f"  {length:>6}  p50 {took['p50']:>8} ms  p99 {took['p99']:>8} ms" for length, took in rows.items()]
    how = "copied" if figures["host_copies"] else "checked, not copied: the host pool has its memory in common"
    lines.append(f"Saved at the 99th percentile: {console.binary_size(figures['copied_bytes_p99'])} ({how}).")
    return _say(figures, lines, as_json=options.json)


def restore(
    model: str = DEFAULT_MODEL, *, tokens: Positive = 8000, rounds: Positive = 5, options: MoveBenchOptions = _MOVE
) -> int:
    """Measure how fast cached tokens come back from the host pool and from disk.

    Parameters
    ----------
    model
        As for forebay serve.
    tokens
        Length of the cached prompt.
    rounds
        Loads from each tier, each beside what the machine itself can do; medians are reported.
    """
    from forebay.bench.tiers import measure_restore

    with _folder() as folder, console.stages("starting the engine") as report:
        base = _options(model, options, folder=folder, target_itl_s=60.0)
        figures = _measured(lambda: measure_restore(base, tokens, rounds, report))
    host, disk = figures["host"], figures["disk"]
    times = "times as fast as computing"
    how = "" if figures["host_copies"] else "checked, not copied, "
    lines = [
        f"Restoring {tokens:,} tokens ({console.binary_size(figures['bytes'])}):",
        f"  host  {host['gbps']} GB/s, {how}{host['of_memcpy']:.0%} of memcpy{_range(host['of_memcpy_range'])}, "
        f"{host['times_recompute']} {times}",
        f"  disk  {disk['gbps']} GB/s, {disk['of_raw_read']:.0%} of reading{_range(disk['of_raw_read_range'])}, "
        f"{disk['times_recompute']} {times}",
    ]
    return _say(figures, lines, as_json=options.json)


def write_through(
    model: str = DEFAULT_MODEL,
    *,
    rows: Positive = 8,
    tokens: Positive = 130,
    rounds: Positive = 9,
    options: MoveBenchOptions = _MOVE,
) -> int:
    """Measure what saving finished pages costs the speed of decode, host pool and disk together.

    Parameters
    ----------
    model
        As for forebay serve.
    rows
        Sequences that decode at once.
    tokens
        Tokens of each answer.
    rounds
        Times that all are made; with and without tiers take turns every 32 tokens, and the median of pairs is reported.
    """
    from forebay.bench.write_through import measure_write_through

    with _folder() as folder, console.stages("starting the engine") as report:
        base = _options(model, options, folder=folder, target_itl_s=60.0)
        figures = _measured(lambda: measure_write_through(base, rows, tokens, rounds, report))
    low, high = figures["cost_range"]
    lines = [
        f"Decode of {rows} sequences: {figures['decode_tokens_per_s']} tokens/s with write-through, "
        f"{figures['decode_tokens_per_s_without']} without. It costs {figures['cost']:.1%}, median of "
        f"{figures['pairs']} pairs (from {low:.1%} to {high:.1%} with 95 % confidence; their middle half lies "
        f"{figures['spread']:.1%} apart).",
        f"{figures['pages_written']} pages were saved to the host pool, {figures['pages_to_disk']} to disk.",
    ]
    return _say(figures, lines, as_json=options.json)


def agent_replay(
    model: str = DEFAULT_MODEL, *, agents: Positive = 8, turns: Positive = 40, options: MoveBenchOptions = _MOVE
) -> int:
    """Replay agents whose conversations grow, with a restart in the middle: how much is read from the cache.

    Parameters
    ----------
    model
        As for forebay serve.
    agents
        Conversations.
    turns
        Turns of each.
    """
    from forebay.bench.agents import AgentPlan, replay_agents

    with _folder() as folder, console.stages("starting the engine") as report:
        base = _options(model, options, folder=folder)
        figures = _measured(lambda: replay_agents(base, AgentPlan(agents=agents, turns=turns), report))
    lines = [
        f"{figures['cached_fraction']:.1%} of {figures['input_tokens']:,} input tokens came from the cache.",
        f"Median time to the first token: {figures['ttft_ms_p50']} ms, without a cache "
        f"{figures['ttft_ms_p50_no_cache']} ms.",
    ]
    return _say(figures, lines, as_json=options.json)


def trace_replay(
    *,
    trace: Path | None = None,
    synthetic: Positive | None = None,
    pages: Positive = 1_600_000,
    curve: Counts = (),
    json: Flag = False,
) -> int:
    """Replay prompts against the cache's eviction policy, with the trace's own clock.

    Parameters
    ----------
    trace
        JSONL file of {"timestamp": ms, "input_length": tokens, "hash_ids": [...]}, a name for every 512 tokens.
    synthetic
        Instead of a file: so many made-up requests of conversations that grow.
    pages
        Room of the cache, in pages of 16 tokens.
    curve
        Other sizes to report too.
    json
        Print the report as JSON.
    """
    from forebay.bench.synthetic_trace import synthetic_trace
    from forebay.bench.trace_replay import read_trace, replay

    if (trace is None) == (synthetic is None):
        raise UsageError("Give either --trace FILE or --synthetic REQUESTS.")
    began = time.perf_counter()
    recorded = [] if trace is None else read_trace(trace)
    figures = replay(lambda: synthetic_trace(synthetic) if synthetic else recorded, pages, curve)
    figures["seconds"] = round(time.perf_counter() - began, 1)
    lines = [f"{figures['requests']:,} requests; a cache without bound has {figures['infinite']:.1%} of their tokens"]
    lines += [
        f"  {at['pages']:>10,} pages  {at['hit_rate']:.1%}  (LRU {at['lru']:.1%})"
        for at in (figures, *figures["curve"])
    ]
    return _say(figures, lines, as_json=json)


def _range(shares: list[float]) -> str:
    return f" (from {shares[0]:.0%} to {shares[1]:.0%} over the rounds)"


def _model(model: str, folder: str, tokens: int) -> str:
    """The model to load; a random one is made in `folder`, with a context for a victim of so many tokens."""
    if model != RANDOM:
        return model
    from forebay.bench.random_model import write_random_model

    write_random_model(Path(folder), tokens + _ANSWER_ROOM)
    return folder


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="forebay-bench-")


def _options(model: str, options: MoveBenchOptions, folder: str | None = None, **more: Any) -> Any:
    from forebay.engine import WorkerOptions

    return WorkerOptions(
        model=model,
        dtype=options.dtype,
        threads=options.threads,
        kernels=options.kernels,
        host_pool=None,
        cache_dir=folder,
        cache_required=folder is not None,
        **more,
    )


def _measured(measure: Any) -> dict[str, Any]:
    """Raises ConfigError for what can't be measured with these lengths."""
    try:
        found: dict[str, Any] = measure()
    except ValueError as error:
        raise ConfigError(f"This can't be measured: {error}") from error
    return found


def _say(figures: dict[str, Any], lines: list[str], *, as_json: bool) -> int:
    console.say(json_module.dumps(figures, indent=2) if as_json else "\n".join(lines))
    return 0
