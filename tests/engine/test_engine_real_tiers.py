"""The real model's greedy answer is the same to the last token however its pages came: computed, from the device, the
host pool or disk, after a restart, and preempted again and again. Each way is shown to have been taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine.tier_bench import Bench, bench, prompt

from forebay.core.request import Priority
from forebay.models import describe, resolve

PROMPT = [100 * token for token in prompt("real", 200)]
ANSWER = 200
SHORT = 24
"""Tokens that show that a prompt's pages are right: an answer follows from all of them."""
PREEMPTED_AT = (1, 47, 96, 145, 199)


def engine(dtype: str, folder: Path | None = None, **options: Any) -> Any:
    source = resolve("smollm2")
    config = describe(source)
    number = {"fp32": 4, "bf16": 2}[dtype]
    page = 16 * 2 * config.layers * config.kv_heads * config.head_dim * number
    if folder is not None:
        options |= {"cache_dir": str(folder), "cache_disk": 256 << 20, "cache_required": True}
    return bench(source.path, 30, options.pop("host", 90), page_bytes=page, dtype=dtype, threads=None, **options)


def preempt(running: Bench, at: int) -> None:
    """Let a critical request take the only place once the batch has `at` tokens, and the device forget its pages."""
    while len(running.tokens["batch"]) < at:
        running.step()
    running.submit(f"critical {at}", prompt(f"critical {at}", 5), 1, priority=Priority.CRITICAL_INTERACTIVE)
    while f"critical {at}" not in running.ended:
        running.step()
        running.engine.forget_device()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_same_200_tokens_from_every_tier_and_through_preemptions(dtype: str, tmp_path: Path) -> None:
    with engine(dtype, host=0, prefix_cache=False) as plain:
        cold = plain.ask("cold", PROMPT, max_tokens=ANSWER)
        assert len(cold) == ANSWER
        assert plain.engine.stats().tiers is None

    with engine(dtype, tmp_path, max_running=1) as warm:
        warm.submit("batch", PROMPT, ANSWER, priority=Priority.BACKGROUND_BATCH)
        for at in PREEMPTED_AT:
            preempt(warm, at)
        warm.run("batch")
        assert warm.tokens["batch"] == cold
        assert warm.engine.stats().preemptions == warm.tiers.restored == len(PREEMPTED_AT)
        pages = sum((len(PROMPT) + at - 1) // 16 for at in PREEMPTED_AT)
        assert warm.tiers.counters["loaded_host"] > 0.8 * pages, "all but a few that were just being written through"
        computed = len(PROMPT) + 5 * len(PREEMPTED_AT)
        assert warm.engine.stats().prompt_tokens_computed == computed, "no token was computed twice"

        assert warm.ask("device", PROMPT, max_tokens=SHORT) == cold[:SHORT]
        assert (warm.first["device"].cached_tokens, warm.first["device"].cached_host) == (192, 0)

        warm.settle(tails=len(PREEMPTED_AT))
        warm.engine.forget_device()
        assert warm.ask("host", PROMPT, max_tokens=SHORT) == cold[:SHORT]
        assert (warm.first["host"].cached_tokens, warm.first["host"].cached_host) == (192, 192)

    with engine(dtype, tmp_path) as restarted:
        assert restarted.ask("disk", PROMPT, max_tokens=SHORT) == cold[:SHORT]
        assert (restarted.first["disk"].cached_tokens, restarted.first["disk"].cached_disk) == (192, 192)
        assert restarted.tiers.counters["loaded_disk"] == 12
        assert restarted.ask("whole", [*PROMPT, *cold[:150]], max_tokens=SHORT) == cold[150 : 150 + SHORT]
        assert restarted.first["whole"].cached_tokens == 336, "the answer's own pages are on disk as well"
