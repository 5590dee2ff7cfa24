"""The benchmarks of page moves, on the tiny model: that they measure what they say. Not how fast anything is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forebay.bench.agents import AgentPlan, replay_agents
from forebay.bench.random_model import write_random_model
from forebay.bench.tiers import measure_preemption, measure_restore
from forebay.bench.write_through import measure_write_through, median_range
from forebay.engine import WorkerOptions


def options(model: Path, **more: Any) -> WorkerOptions:
    return WorkerOptions(model=str(model), dtype="fp32", threads=1, kv_memory=4 << 20, host_pool=8 << 20, **more)


def silent(stage: str, share: float) -> None:
    """Progress that nobody watches."""


def test_preemption_copies_a_tail_and_little_more(tiny_llama: Path) -> None:
    figures = measure_preemption(options(tiny_llama, max_running=1), (100, 200), 6, silent)
    assert figures["preemptions"] == 12
    assert set(figures["by_victim_tokens"]) == {"100", "200"}
    assert 0 < figures["preempt_ms"]["p50"] <= figures["preempt_ms"]["p99"]
    assert figures["page_bytes"] == 8192
    assert 0 < figures["copied_bytes_p99"] <= 16 * 8192


def test_a_random_model_has_the_context_that_is_asked_for(tmp_path: Path) -> None:
    write_random_model(tmp_path, 3000)
    figures = measure_preemption(
        WorkerOptions(model=str(tmp_path), threads=1, kv_memory=8 << 20, host_pool=8 << 20, max_running=1),
        (2500,),
        2,
        silent,
    )
    assert figures["preemptions"] == 2
    assert figures["copied_pages_p50"] <= 16


def test_restore_loads_what_was_computed(tiny_llama: Path, tmp_path: Path) -> None:
    figures = measure_restore(options(tiny_llama, cache_dir=str(tmp_path), cache_required=True), 400, 2, silent)
    assert figures["bytes"] == 25 * 8192
    for tier, limit in (("host", "of_memcpy"), ("disk", "of_raw_read")):
        assert figures[tier]["gbps"] > 0
        lowest, highest = figures[tier][f"{limit}_range"]
        assert 0 < lowest <= figures[tier][limit] <= highest
    assert figures["recompute_s"] > 0
    assert figures["raw_read_gbps"] >= max(figures["raw_reads_gbps"].values())


def test_agents_find_their_past_after_a_restart(tiny_llama: Path, tmp_path: Path) -> None:
    plan = AgentPlan(agents=2, turns=6, system=160, tool=20, answer=8, samples=2)
    figures = replay_agents(options(tiny_llama, cache_dir=str(tmp_path), cache_required=True), plan, silent)
    assert figures["input_tokens"] == sum(2 * (160 + 20 * (t + 1) + 8 * t) for t in range(6))
    assert figures["cached_fraction"] > 0.75
    assert figures["from_disk_after_restart"] >= 300
    assert figures["ttft_ms_p50"] > 0
    assert figures["ttft_ms_p50_no_cache"] > 0


def test_write_through_is_compared_with_none(tiny_llama: Path, tmp_path: Path) -> None:
    figures = measure_write_through(options(tiny_llama, cache_dir=str(tmp_path)), 2, 70, 3, silent)
    assert figures["pages_written"] >= 4 * 2 * 6, "four rounds of two sequences of six full pages"
    assert figures["pairs"] == 3 * 2
    low, high = figures["cost_range"]
    assert -1 < low <= figures["cost"] <= high
    assert min(figures["decode_tokens_per_s"], figures["decode_tokens_per_s_without"]) > 0


def test_write_through_needs_answers_that_fill_a_page(tiny_llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="more than 32 tokens"):
        measure_write_through(options(tiny_llama, cache_dir=str(tmp_path)), 2, 32, 3, silent)


def test_the_median_lies_between_values_that_few_draws_leave_it_outside_of() -> None:
    assert median_range(1) == (0, 0)
    assert median_range(5) == (0, 4)
    assert median_range(50) == (17, 32), "the 18th and the 33rd, as tables have it"
