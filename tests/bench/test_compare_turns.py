"""The pure part of the comparison: choice of rows, medians, ratios, goals, limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forebay.bench.compare.limits import Bounds, limit, without_attention
from forebay.bench.compare.rows import ROWS, Goal, Kind, Load, Row, choose_rows
from forebay.bench.compare.turns import (
    Span,
    Turn,
    best_peer,
    failures,
    goal_met,
    median_loads,
    spans,
    times_as_good,
)
from forebay.core.errors import ConfigError

RATE = Row("decode-1", "", Kind.DECODE, "tokens/s", Goal({"best": 2.0}), sequences=1, context=100, tokens=20)
TIME = Row("start", "", Kind.SERVER, "s", Goal(below=3.0), higher_is_better=False)


def test_rows_are_chosen_by_name_or_by_first_part() -> None:
    assert choose_rows("all") == ROWS
    assert [row.name for row in choose_rows("start, prefill-512")] == ["prefill-512", "start"]
    assert [row.name for row in choose_rows("prefill")] == ["prefill-512", "prefill-2048"]
    assert [row.name for row in choose_rows("serving")] == ["serving", "serving-itl", "serving-ttft"]
    assert [row.name for row in choose_rows("decode-8")] == ["decode-8"]
    for wrong in ("decoding", "", "prefill-512,x"):
        with pytest.raises(ConfigError, match="prefill-512"):
            choose_rows(wrong)


def test_spans_leave_out_rows_that_failed_once() -> None:
    turns = [
        Turn({"a": 1.0, "b": 5.0}, loads={4: {"x": 1.0}}),
        Turn({"a": 9.0}, {"b": "broke"}, {4: {"x": 3.0}}),
        Turn({"a": 2.0}, {"b": "later"}, {4: {"x": 9.0}}),
    ]
    assert spans(turns) == {"a": Span(2.0, 1.0, 9.0, 3)}
    assert spans(turns[:1]) == {"a": Span(1.0, 1.0, 1.0, 1), "b": Span(5.0, 5.0, 5.0, 1)}
    assert failures(turns) == {"b": "broke"}
    assert median_loads(turns) == {4: {"x": 3.0, "turns": 3}}


def test_ahead_is_above_one_in_both_directions() -> None:
    assert times_as_good(RATE, 30.0, 10.0) == 3.0
    assert times_as_good(TIME, 2.0, 10.0) == 5.0
    assert best_peer(RATE, {"ours": 99.0, "llama.cpp": 3.0, "vllm": 4.0}) == "vllm"
    assert best_peer(TIME, {"ours": 0.1, "llama.cpp": 3.0, "vllm": 4.0}) == "llama.cpp"
    assert best_peer(RATE, {"ours": 1.0}) is None


def test_goals() -> None:
    assert goal_met(RATE, {"ours": 8.0, "llama.cpp": 3.0, "vllm": 4.0}, None) is True
    assert goal_met(RATE, {"ours": 7.9, "llama.cpp": 3.0, "vllm": 4.0}, None) is False
    assert goal_met(RATE, {"ours": 8.0}, None) is None
    assert goal_met(RATE, {"vllm": 8.0}, None) is None
    assert (goal_met(TIME, {"ours": 2.9}, None), goal_met(TIME, {"ours": 3.0}, None)) == (True, False)
    both = Row("r", "", Kind.PREFILL, "", Goal({"vllm": 2.0}, of_float_limit=0.75))
    assert goal_met(both, {"ours": 4.0, "vllm": 2.0}, 0.75) is True
    assert goal_met(both, {"ours": 4.0, "vllm": 2.0}, 0.74) is False
    assert goal_met(both, {"ours": 4.0}, 0.74) is False
    assert goal_met(both, {"ours": 4.0}, 0.8) is None
    assert goal_met(Row("r", "", Kind.SERVER, "", Goal()), {"ours": 1.0}, 1.0) is None


BOUNDS = Bounds(
    gemm_gflops=100.0,
    float_gflops=50.0,
    read_gbps=10.0,
    layer_flops=1e8,
    head_flops=1e8,
    attention_flops=0.0,
    read_bytes=1e9,
    weight_bytes=1 << 30,
    kv_token_bytes=1e6,
)


def test_limits_by_hand() -> None:
    load = Load(clients=(1, 4), input_tokens=100, output_tokens=10)
    prefill = Row("p", "", Kind.PREFILL, "", Goal(), tokens=5)
    assert limit(prefill, BOUNDS, load) == pytest.approx(1000.0)
    # One sequence: 1 GB and 110 tokens of 1 MB at 10 GB/s, far above 2 ms of operations.
    assert limit(RATE, BOUNDS, load) == pytest.approx(1 / 0.111)
    busy = Row("d", "", Kind.DECODE, "", Goal(), sequences=1000, context=0, tokens=0)
    assert limit(busy, BOUNDS, load) == pytest.approx(1000 / 2.0)
    # Four clients at 105 tokens: 1.42 GB a step, so a request takes 0.1 s and ten steps of 0.142 s shared by four.
    by_name = {row.name: row for row in ROWS}
    assert limit(by_name["serving"], BOUNDS, load) == pytest.approx(10 / (0.1 + 10 * 0.142 / 4))
    assert limit(by_name["serving-itl"], BOUNDS, load) == pytest.approx(142.0)
    assert limit(by_name["serving-ttft"], BOUNDS, load) == pytest.approx(100.0 * 5 / 2)
    assert limit(by_name["memory-low"], BOUNDS, load) == limit(by_name["memory"], BOUNDS, load)
    assert limit(by_name["memory"], BOUNDS, load) == pytest.approx(1024 + load.cached_tokens * 1e6 / (1 << 20))
    assert limit(by_name["start"], BOUNDS, load) is None


def test_attention_counts_in_the_limits() -> None:
    seeing = replace(BOUNDS, attention_flops=1e6)
    assert without_attention(seeing) == BOUNDS
    prefill = Row("p", "", Kind.PREFILL, "", Goal(), tokens=199)
    # A token of 199 sees 100 on average, so attention is as much again as the layers.
    assert limit(prefill, seeing, Load()) == pytest.approx(500.0)
    busy = Row("d", "", Kind.DECODE, "", Goal(), sequences=1000, context=200, tokens=0)
    light = replace(seeing, kv_token_bytes=0.0)
    assert limit(busy, light, Load()) == pytest.approx(1000 / 4.0)
