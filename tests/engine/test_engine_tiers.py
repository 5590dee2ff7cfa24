"""One engine with a host pool and a disk: the same tokens however its pages came back, and proof that they did."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.core.messages import TierStats, TokenOutput
from forebay.core.request import GenerateRequest, Priority, SamplingParams
from forebay.engine import WorkerOptions
from forebay.engine.build import build_engine
from forebay.engine.engine import Engine

PAGE = 4096 * 2
"""Bytes of the tiny model's page in fp32."""
ANSWER = 40


def prompt(name: str, tokens: int) -> list[int]:
    return random.Random(name).choices(range(3, 256), k=tokens)


@dataclass
class Bench:
    """An engine and what it has answered."""

    engine: Engine
    tokens: dict[str, list[int]] = field(default_factory=dict)
    first: dict[str, TokenOutput] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def submit(self, name: str, ids: list[int], max_tokens: int = ANSWER, **options: Any) -> None:
        sampling = SamplingParams(max_tokens=max_tokens, temperature=options.pop("temperature", 0.0), seed=7)
        self.tokens[name] = []
        self.engine.submit(GenerateRequest(id=name, prompt_ids=ids, sampling=sampling, **options))

    def step(self) -> None:
        for output in self.engine.step():
            assert output.error is None, output.error
            self.first.setdefault(output.request_id, output)
            self.tokens[output.request_id] += output.token_ids
            if output.finish_reason is not None:
                self.ended.add(output.request_id)

    def run(self, *names: str, steps: int = 2000) -> None:
        """Step until these have ended; a step that finds nothing to do leaves the other threads some time."""
        for _ in range(steps):
            if self.ended.issuperset(names):
                return
            self.step()
            if self.engine.stalled:
                time.sleep(0.001)
        raise AssertionError(f"{names} have not ended after {steps} steps")

    def ask(self, name: str, ids: list[int], **options: Any) -> list[int]:
        self.submit(name, ids, **options)
        self.run(name)
        return self.tokens[name]

    def settle(self) -> None:
        """Until nothing is copied any more and all that belongs on disk is there."""
        for _ in range(5000):
            self.step()
            stats = self.tiers
            if not (stats.pages_writing or stats.pages_loading) and self._spilled(stats):
                return
            time.sleep(0.001)
        raise AssertionError(f"the copies do not end: {self.tiers}")

    @property
    def tiers(self) -> TierStats:
        found = self.engine.stats().tiers
        assert found is not None
        return found

    def forget_device(self, pages: int) -> None:
        """Fill all device pages with something else."""
        for i in range(2):
            name = f"flush {len(self.tokens)} {i}"
            self.ask(name, prompt(name, pages * 16 - 20), max_tokens=2)
        self.settle()

    @staticmethod
    def _spilled(stats: TierStats) -> bool:
        return not stats.disk_bytes_limit or stats.disk_pages >= stats.host_pages or stats.counters["spills_failed"] > 0


@contextmanager
def bench(model: Path, pages: int = 20, host_pages: int = 200, **options: Any) -> Iterator[Bench]:
    wanted = WorkerOptions(
        model=str(model),
        dtype="fp32",
        threads=1,
        kv_memory=pages * PAGE,
        max_model_len=16 * pages,
        host_pool=host_pages and host_pages * (PAGE + 256) + 8192,
        **options,
    )
    engine = build_engine(wanted, lambda stage, share: None)
    try:
        made = Bench(engine)
        yield made
        assert not engine.check(1).problems
        assert engine.check(2).pages_used == 0
    finally:
        engine.close()


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
