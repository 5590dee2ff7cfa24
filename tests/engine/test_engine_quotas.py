"""An engine whose tenants may hold little below the device: no token is computed twice for that, and others get on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine.tier_bench import PAGE, Bench, bench, prompt

from forebay.core.request import Priority
from forebay.kv.quota import Quotas

BATCH, NORMAL, CRITICAL = Priority.BACKGROUND_BATCH, Priority.NORMAL_INTERACTIVE, Priority.CRITICAL_INTERACTIVE


def quotas(pages: int, **tenants: int) -> Quotas:
    """So many pages for each tenant that is not named."""
    return Quotas(pages * PAGE, {name: count * PAGE for name, count in tenants.items()})


def submit(running: Bench, name: str, tokens: int, at: int = 3, **options: Any) -> None:
    """A request, which has some tokens when this returns."""
    running.submit(name, prompt(name, tokens), **{"tenant": name} | options)
    while len(running.tokens[name]) < at:
        running.step()


def expected(model: Path, *names: tuple[str, int]) -> dict[str, list[int]]:
    with bench(model, host_pages=0, prefix_cache=False) as cold:
        return {name: cold.ask(name, prompt(name, tokens)) for name, tokens in names}


def test_the_victim_is_one_whose_quota_holds_its_pages(tiny_llama: Path) -> None:
    asked = [("roomy", 100), ("full", 110)]
    with bench(tiny_llama, host_quotas=quotas(100, full=3)) as crowded:
        submit(crowded, "roomy", 100, priority=NORMAL)
        submit(crowded, "full", 110, priority=BATCH)
        submit(crowded, "critical", 100, 1, priority=CRITICAL, max_tokens=4)
        assert crowded.engine.stats().preemptions_by == {"admission/normal_interactive": 1}
        assert len(crowded.tokens["full"]) < 40, "it goes on meanwhile"
        crowded.run("roomy", "full", "critical")
        assert {name: crowded.tokens[name] for name, _ in asked} == expected(tiny_llama, *asked)
        stats = crowded.engine.stats()
        assert (stats.recomputed_by, stats.prompt_tokens_computed) == ({}, 310)


@pytest.mark.parametrize("retention", ["chat", "none"])
@pytest.mark.parametrize(("host", "disk"), [(0, 0), (3, 0), (3, 4), (0, 100), (1, 100), (3, 100), (100, 0)])
def test_a_small_quota_makes_no_token_be_computed_twice(
    tiny_llama: Path, tmp_path: Path, host: int, disk: int, retention: str
) -> None:
    """Two answers of one tenant that together come to want more pages than the device has."""
    asked = [("one", 50), ("two", 50)]
    folder: dict[str, Any] = {"cache_dir": str(tmp_path / "kv"), "cache_disk": 16 << 20, "cache_required": True}
    limits: dict[str, Any] = {"host_quotas": quotas(100, t=host), "disk_quotas": quotas(100, t=disk)}
    with bench(tiny_llama, 10, **limits, **folder) as crowded:
        for name, tokens in asked:
            crowded.submit(name, prompt(name, tokens), 60, tenant="t", priority=BATCH, retention=retention)
        crowded.run(*(name for name, _ in asked))
        stats = crowded.engine.stats()
        assert (stats.recomputed_by, stats.prompt_tokens_computed) == ({}, 100)
