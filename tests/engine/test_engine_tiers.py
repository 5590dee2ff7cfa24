"""One engine with a host pool and a disk: the same tokens however its pages came back, and proof that they did."""

from __future__ import annotations

import random
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
    """There is enough left of the answer for the others to need its pages, however short a busy machine's steps are."""
    ids, answer = prompt("five", 200), 60
    for temperature in (0.0, 0.9):
        cold = expected(tiny_llama, ids, max_tokens=answer, temperature=temperature)
        for at in (1, 7, 16, 29):
            with bench(tiny_llama) as crowded:
                crowded.submit("batch", ids, answer, temperature=temperature, priority=Priority.BACKGROUND_BATCH)
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


@pytest.mark.parametrize("own", [False, True])
def test_a_pool_in_the_devices_memory_and_one_of_its_own_give_the_same(
    tiny_llama: Path, tmp_path: Path, own: bool
) -> None:
    """Preempted, brought back, gone on with, and read from disk into pages that the pool then has as well."""
    ids, other = prompt("eight", 200), prompt("nine", 120)
    cold, cold_other = expected(tiny_llama, ids, max_tokens=100), expected(tiny_llama, other)
    folder: dict[str, Any] = {"cache_dir": str(tmp_path / "kv"), "cache_disk": 16 << 20, "cache_required": True}
    where: dict[str, Any] = {"host_pool_path": str(tmp_path)} if own else {}
    with bench(tiny_llama, **folder, **where) as warm:
        assert warm.engine.moves is not None
        assert warm.engine.moves.copies is own
        warm.submit("batch", ids, 100, priority=Priority.BACKGROUND_BATCH)
        for more in (3, 6, 8, 16):
            goal = len(warm.tokens["batch"]) + more  # it goes on while the other waits for copies: how far is chance
            while len(warm.tokens["batch"]) < goal:
                warm.step()
            warm.submit(f"c{more}", prompt(f"c{more}", 250), 4, priority=Priority.CRITICAL_INTERACTIVE)
            warm.run(f"c{more}")
        warm.run("batch")
        assert warm.tokens["batch"] == cold
        assert warm.tiers.restored >= 4
        assert warm.ask("other", other) == cold_other
        warm.settle(tails=20)
        warm.engine.forget_device()
        assert warm.ask("again", ids) == cold[:40]
        assert warm.first["again"].cached_host > 0
        assert not warm.engine.check(3).problems
    with bench(tiny_llama, **folder, **where) as after:
        assert after.ask("disk", other) == cold_other
        assert after.first["disk"].cached_disk == 112
        after.settle(tails=20)
        after.engine.forget_device()
        assert after.ask("host", other) == cold_other
        assert after.first["host"].cached_host == 112
        assert not after.engine.check(3).problems


def test_random_traffic_over_little_memory_gives_the_answers_of_a_quiet_engine(tiny_llama: Path) -> None:
    """Requests that share prefixes come, are preempted and aborted, with fewer pages on device and pool than they
    want; every answer that ends is the one that it would get alone."""
    chance = random.Random(5)
    stems = [prompt(f"stem {i}", 80) for i in range(3)]
    texts = [stem + prompt(f"end {i} {j}", 5 + 23 * j) for i, stem in enumerate(stems) for j in range(4)]
    alone = {i: expected(tiny_llama, ids, max_tokens=30) for i, ids in enumerate(texts)}
    ranks = [Priority.BACKGROUND_BATCH, Priority.NORMAL_INTERACTIVE, Priority.CRITICAL_INTERACTIVE]
    with bench(tiny_llama, 24, 30, max_running=6) as busy:
        asked: dict[str, int] = {}
        gone: set[str] = set()
        for i in range(90):
            name, which = f"r{i}", chance.randrange(len(texts))
            busy.submit(name, texts[which], 30, priority=chance.choice(ranks))
            asked[name] = which
            for _ in range(chance.randrange(12)):
                busy.step()
                assert not busy.engine.check(i).problems
            waiting = sorted(asked.keys() - busy.ended - gone)
            if waiting and chance.random() < 0.15:
                gone.add(waiting[0])
                busy.engine.abort(waiting[0])
        busy.run(*(asked.keys() - gone), steps=20_000)
        busy.settle()
        for name in asked.keys() - gone:
            assert busy.tokens[name] == alone[asked[name]], name
        assert busy.engine.stats().preemptions > 0
        assert busy.tiers.counters["loaded_host"] > 0
        assert busy.tiers.counters["evicted_host_room"] > 0
