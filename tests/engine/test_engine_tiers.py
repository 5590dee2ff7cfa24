"""One engine with a host pool and a disk: the same tokens however its pages came back, and proof that they did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine.tier_bench import bench, prompt

from forebay.core.request import Priority
from forebay.fabric import KvTiers


def expected(model: Path, ids: list[int], **options: Any) -> list[int]:
    """The answer of an engine without any cache."""
    with bench(model, host_pages=0, prefix_cache=False) as cold:
        return cold.ask("cold", ids, **options)


def test_device_hit_and_host_hit(tiny_llama: Path) -> None:
    ids = prompt("one", 150)
    with bench(tiny_llama) as warm:
        cold = warm.ask("first", ids)
        assert cold == expected(tiny_llama, ids)
        assert warm.first["first"].cached_tokens == 0
        assert warm.ask("device", ids) == cold
        assert (warm.first["device"].cached_tokens, warm.first["device"].cached_host) == (144, 0)
        warm.settle()
        warm.forget_device(20)
        before = warm.tiers.counters["loaded_host"]
        assert warm.ask("host", ids) == cold
        assert (warm.first["host"].cached_tokens, warm.first["host"].cached_host) == (144, 144)
        assert warm.tiers.counters["loaded_host"] == before + 9
        assert warm.tiers.prompt_tokens_host == 144


def test_a_load_that_finds_no_place_is_asked_for_again(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when more sequences come back at once than loads may wait: what is below is not computed again for that."""
    ids = prompt("one", 150)
    with bench(tiny_llama) as warm:
        cold = warm.ask("first", ids)
        warm.settle()
        warm.forget_device(20)
        load = KvTiers.load
        refused: list[Any] = []

        def busy(self: KvTiers, *args: Any) -> int | None:
            if len(refused) < 3:
                refused.append(args)
                return None
            return load(self, *args)

        monkeypatch.setattr(KvTiers, "load", busy)
        assert warm.ask("host", ids) == cold
        assert len(refused) == 3
        assert (warm.first["host"].cached_tokens, warm.first["host"].cached_host) == (144, 144)


def test_disk_hit_after_a_restart(tiny_llama: Path, tmp_path: Path) -> None:
    ids = prompt("two", 150)
    folder: dict[str, Any] = {"cache_dir": str(tmp_path / "kv"), "cache_disk": 16 << 20, "cache_required": True}
    with bench(tiny_llama, **folder) as before:
        cold = before.ask("first", ids)
        before.settle()
    with bench(tiny_llama, **folder) as after:
        assert after.ask("disk", ids) == cold == expected(tiny_llama, ids)
        assert (after.first["disk"].cached_tokens, after.first["disk"].cached_disk) == (144, 144)
        assert after.tiers.counters["loaded_disk"] == 9
        assert after.tiers.prompt_tokens_disk == 144


def test_tenants_share_nothing_on_disk(tiny_llama: Path, tmp_path: Path) -> None:
    ids = prompt("three", 150)
    folder: dict[str, Any] = {"cache_dir": str(tmp_path / "kv"), "cache_disk": 16 << 20, "cache_required": True}
    with bench(tiny_llama, **folder) as before:
        before.ask("first", ids, tenant="a")
        before.settle()
    with bench(tiny_llama, **folder) as after:
        after.ask("other", ids, tenant="b")
        assert after.first["other"].cached_tokens == 0
        assert after.tiers.counters["loaded_disk"] == 0


def test_tenants_share_what_is_public_and_no_more(tiny_llama: Path, tmp_path: Path) -> None:
    system, user = prompt("system", 70), prompt("user", 60)
    ids = system + user
    folder: dict[str, Any] = {"cache_dir": str(tmp_path / "kv"), "cache_disk": 16 << 20, "cache_required": True}
    with bench(tiny_llama, **folder) as before:
        before.engine.mark_public(system)
        cold = before.ask("first", ids, tenant="a")
        assert before.ask("other", ids, tenant="b") == before.ask("same", ids, tenant="a") == cold
        assert [before.first[name].cached_tokens for name in ("first", "other", "same")] == [0, 64, 128]
        before.settle()
    with bench(tiny_llama, **folder) as after:
        after.engine.mark_public(system)
        assert after.ask("third", ids, tenant="c") == cold
        assert after.first["third"].cached_disk == 64
    with bench(tiny_llama, **folder) as unmarked:
        assert unmarked.ask("fourth", ids, tenant="c") == cold
        assert unmarked.first["fourth"].cached_tokens == 0


def test_class_none_is_not_stored(tiny_llama: Path, tmp_path: Path) -> None:
    ids = prompt("four", 150)
    folder: dict[str, Any] = {"cache_dir": str(tmp_path / "kv"), "cache_disk": 16 << 20, "cache_required": True}
    with bench(tiny_llama, **folder) as before:
        before.ask("first", ids, retention="none")
    with bench(tiny_llama, **folder) as after:
        after.ask("again", ids)
        assert after.first["again"].cached_tokens == 0


def test_preempted_at_any_point_it_goes_on_with_the_same_tokens(tiny_llama: Path) -> None:
    ids = prompt("five", 200)
    for temperature in (0.0, 0.9):
        cold = expected(tiny_llama, ids, temperature=temperature)
        for at in (1, 7, 16, 29):
            with bench(tiny_llama) as crowded:
                crowded.submit("batch", ids, temperature=temperature, priority=Priority.BACKGROUND_BATCH)
                while len(crowded.tokens["batch"]) < at:
                    crowded.step()
                for i in range(3):
                    crowded.submit(f"c{i}", prompt(f"c{i}", 250), 4, priority=Priority.CRITICAL_INTERACTIVE)
                crowded.run("batch", "c0", "c1", "c2")
                assert crowded.tokens["batch"] == cold
                stats = crowded.engine.stats()
                assert stats.preemptions >= 1
                assert stats.preemptions_by == {"admission/background_batch": stats.preemptions}
                assert stats.tiers is not None
                assert stats.tiers.restored >= 1
                assert stats.tiers.counters["loaded_host"] > 0
                assert stats.prompt_tokens_computed == 200 + 3 * 250, "no prompt token was computed twice"


def test_without_a_host_pool_it_is_computed_again(tiny_llama: Path) -> None:
    ids = prompt("six", 200)
    with bench(tiny_llama, host_pages=0) as plain:
        plain.submit("batch", ids, priority=Priority.BACKGROUND_BATCH)
        while len(plain.tokens["batch"]) < 9:
            plain.step()
        plain.submit("critical", prompt("critical", 250), 4, priority=Priority.CRITICAL_INTERACTIVE)
        plain.run("batch", "critical")
        assert plain.tokens["batch"] == expected(tiny_llama, ids)
        stats = plain.engine.stats()
        assert stats.preemptions == 1
        assert stats.tiers is None
        assert stats.prompt_tokens_computed > 200 + 250


def test_bytes_that_change_below_are_never_used(tiny_llama: Path, tmp_path: Path) -> None:
    ids = prompt("seven", 150)
    folder: dict[str, Any] = {"cache_dir": str(tmp_path / "kv"), "cache_disk": 16 << 20, "cache_required": True}
    with bench(tiny_llama, **folder) as before:
        cold = before.ask("first", ids)
        before.settle()
    for extent in (tmp_path / "kv" / "extents").iterdir():
        data = bytearray(extent.read_bytes())
        for start in range(0, len(data), 4096):
            data[start] ^= 1
        extent.write_bytes(data)
    with bench(tiny_llama, **folder) as after:
        assert after.ask("again", ids) == cold
        assert after.first["again"].cached_tokens == 0
        assert after.tiers.counters["corrupt_disk"] >= 1
        assert after.tiers.loads_short == 1
