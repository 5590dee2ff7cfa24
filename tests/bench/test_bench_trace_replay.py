"""The trace replay: hit rates that can be counted by hand, and files that are no trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forebay.bench.synthetic_trace import synthetic_trace
from forebay.bench.trace_replay import PAGES, ByValue, Lru, Prompt, Unbounded, hit_rate, read_trace, replay
from forebay.core.errors import ConfigError


def prompts(*blocks: str, tokens: int = 0) -> list[Prompt]:
    """One prompt a second; each letter is a block."""
    return [Prompt(float(i), tokens or 512 * len(text), [c.encode() for c in text]) for i, text in enumerate(blocks)]


def test_only_leading_blocks_are_hits() -> None:
    assert hit_rate(prompts("abc", "abd", "xbc"), Unbounded()) == pytest.approx(2 / 9)


def test_a_partly_filled_block_counts_by_its_tokens() -> None:
    assert hit_rate(prompts("ab", "ab", tokens=600), Unbounded()) == pytest.approx(0.5)


@pytest.mark.parametrize("cache", [Lru(2), ByValue(2, 1.0)])
def test_prefixes_go_from_their_end(cache: Lru | ByValue) -> None:
    for prompt in prompts("abcd"):
        cache.use(prompt.blocks, prompt.time_s)
    assert cache.hits([b"a", b"b", b"c"]) == 2


def test_what_is_used_often_outlives_what_was_used_last() -> None:
    trace = prompts("a", "a", "a", "b", "c", "a")
    assert hit_rate(trace, ByValue(2, 10.0)) == pytest.approx(3 / 6)
    assert hit_rate(trace, Lru(2)) == pytest.approx(2 / 6)


def test_report(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 1000 * i, "input_length": 1024, "hash_ids": [0, i % 3 + 1]} for i in range(9)]
    file.write_text("\n".join(map(json.dumps, rows)))
    figures = replay(lambda: read_trace(file), 4 * PAGES, [PAGES])
    assert figures["hit_rate"] == figures["lru"] == figures["infinite"] == pytest.approx((8 + 6) / 18, abs=1e-4)
    assert figures["curve"][0] == {
        "pages": PAGES,
        "hit_rate": pytest.approx(8 / 18, abs=1e-4),
        "lru": pytest.approx(8 / 18, abs=1e-4),
    }
    with pytest.raises(ConfigError, match="at least one"):
        replay(lambda: read_trace(file), PAGES - 1)


@pytest.mark.parametrize(
    "text", ["", "{", '{"timestamp": 1}', "[]", '{"timestamp": 1, "input_length": 2, "hash_ids": 3}']
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(text)
    with pytest.raises(ConfigError, match="trace"):
        read_trace(file)
    with pytest.raises(ConfigError, match="can't be read"):
        read_trace(tmp_path / "none")


def test_synthetic_traffic_is_the_same_each_time_and_a_bound_costs_hits() -> None:
    assert list(synthetic_trace(300)) == list(synthetic_trace(300))
    assert [prompt.blocks for prompt in synthetic_trace(300, seed=2)] != [p.blocks for p in synthetic_trace(300)]
    figures = replay(lambda: synthetic_trace(3000), 1000 * PAGES, [200 * PAGES])
    assert figures["requests"] == 3000
    assert figures["curve"][0]["hit_rate"] < figures["hit_rate"] < figures["infinite"] < 1
