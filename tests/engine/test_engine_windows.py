"""A model whose attention has a window in every layer: the same tokens from few pages as from all of them, and however
its units came back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.tier_bench import PAGE, Bench, prompt
from transformers import MistralConfig, MistralForCausalLM

from forebay.core.request import Priority
from forebay.engine import WorkerOptions, build
from forebay.engine.paging import resume_policy
from forebay.kv import KvBook
from forebay.models.hf_config import read_hf_config

WINDOW, CHUNK = 70, 256
LONG = prompt("long", 900)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Mistral of the tiny Llama's sizes, with a window."""
    folder = tmp_path_factory.mktemp("tiny-mistral")
    torch.manual_seed(11)
    config = MistralConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=256,
        max_position_embeddings=2048,
        sliding_window=WINDOW,
        initializer_range=0.15,
    )
    MistralForCausalLM(config).save_pretrained(folder)
    return folder


@contextmanager
def engine(model: Path, pages: int = 40, host_pages: int = 200, **options: Any) -> Iterator[Bench]:
    """An engine of `pages` device pages; a sequence takes 22 of them at most."""
    size = host_pages * (PAGE + 256) + 8192 if host_pages else 0
    more: dict[str, Any] = {"dtype": "fp32", "threads": 1, "max_step_tokens": CHUNK} | options
    made = Bench(
        build.build_engine(
            WorkerOptions(model=str(model), kv_memory=pages * PAGE, host_pool=size, **more), lambda *_: None
        )
    )
    try:
        yield made
        assert not made.engine.check(1).problems
        assert made.engine.check(2).pages_used == 0
    finally:
        made.engine.close()


@pytest.fixture(scope="module")
def cold(windowed: Path) -> list[int]:
    """The answer to LONG with all pages kept and no cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "open_book", lambda config, pages, chunk, prefix_cache: KvBook(pages, prefix_cache))
        with engine(windowed, pages=64, host_pages=0, prefix_cache=False) as whole:
            return whole.ask("cold", LONG)


def test_the_window_is_read_from_the_model(windowed: Path, tiny_llama: Path) -> None:
    policy = resume_policy(read_hf_config(windowed))
    assert policy is not None
    assert policy.window == WINDOW
    assert resume_policy(read_hf_config(tiny_llama)) is None


@pytest.mark.parametrize("kernels", ["native", "torch"])
def test_few_pages_do_for_a_long_prompt(windowed: Path, cold: list[int], kernels: str) -> None:
    with engine(windowed, pages=22, host_pages=0, kernels=kernels) as small:
        small.submit("long", LONG)
        most = 0
        while "long" not in small.ended:
            small.step()
            most = max(most, small.engine.check(0).pages_used)
        assert small.tokens["long"] == cold
        assert most <= 22 < 940 // 16
        assert small.engine.info.max_model_len == 2048


def test_hits_on_device_and_in_the_host_pool(windowed: Path, cold: list[int]) -> None:
    with engine(windowed) as warm:
        assert warm.ask("first", LONG) == cold
        assert warm.ask("device", LONG) == cold
        assert (warm.first["device"].cached_tokens, warm.first["device"].cached_host) == (896, 0)
        warm.settle()
        assert warm.tiers.host_pages <= 11, "a window before the end of the input, and the end of the output"
        warm.engine.forget_device()
        before = warm.tiers.counters["loaded_host"]
        assert warm.ask("host", LONG) == cold
        assert warm.first["host"].cached_tokens == 896
        assert warm.tiers.counters["loaded_host"] == before + 5
        follow = [*LONG, *cold, *prompt("more", 30)]
        warm.ask("next turn", follow)
        assert warm.first["next turn"].cached_tokens == 928


def test_a_unit_on_disk_is_resumed_after_a_restart(windowed: Path, cold: list[int], tmp_path: Path) -> None:
    folder: dict[str, Any] = {"cache_dir": str(tmp_path / "kv"), "cache_disk": 16 << 20, "cache_required": True}
    with engine(windowed, **folder) as before:
        assert before.ask("first", LONG) == cold
        before.settle()
    with engine(windowed, **folder) as after:
        assert after.ask("disk", LONG) == cold
        assert (after.first["disk"].cached_tokens, after.first["disk"].cached_disk) == (896, 896)
        assert after.tiers.counters["loaded_disk"] == 5


@pytest.mark.parametrize("at", [1, 17, 33])
def test_preempted_it_goes_on_with_the_same_tokens(windowed: Path, cold: list[int], at: int) -> None:
    with engine(windowed, pages=24) as crowded:
        crowded.submit("batch", LONG, priority=Priority.BACKGROUND_BATCH)
        while len(crowded.tokens["batch"]) < at:
            crowded.step()
        crowded.submit("critical", prompt("critical", 700), 4, priority=Priority.CRITICAL_INTERACTIVE)
        crowded.run("batch", "critical")
        assert crowded.tokens["batch"] == cold
        stats = crowded.engine.stats()
        assert stats.preemptions == 1
        assert stats.tiers is not None
        assert (stats.tiers.restored, stats.tiers.urgent_saves <= 6) == (1, True)
        assert stats.prompt_tokens_computed == 1600, "no prompt token was computed twice"
