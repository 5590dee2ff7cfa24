"""Our own side of the comparison: what it is told to run, and the program that measures the engine."""

from __future__ import annotations

import io
import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

from forebay.bench.compare.comparison import Comparison
from forebay.bench.compare.limits import limit
from forebay.bench.compare.ours import Ours, token_bytes
from forebay.bench.compare.program import take, work
from forebay.bench.compare.programs import ours_engine
from forebay.bench.compare.rows import Goal, Kind, Load, Row, choose_rows
from forebay.bench.compare.side import Setup
from forebay.bench.compare.turns import Turn
from forebay.kernels.limits import MachineLimits
from forebay.models import describe, resolve

ROWS = (
    Row("prefill-40", "", Kind.PREFILL, "tokens/s", Goal(), tokens=40),
    Row("decode-3", "", Kind.DECODE, "tokens/s", Goal(), sequences=3, context=20, tokens=5),
    Row("too-long", "", Kind.PREFILL, "tokens/s", Goal(), tokens=600),
)


def test_the_program_measures_rows_and_sizes(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"model": str(tiny_llama), "max_running": 3, "kv_memory": 1 << 22, "threads": 1}
    monkeypatch.setattr(sys, "argv", ["ours_engine", json.dumps(options)])
    monkeypatch.setattr(sys, "stdin", io.StringIO(2 * (json.dumps({"rows": work(ROWS)}) + "\n")))
    monkeypatch.setattr(ours_engine, "measure_limits", lambda _kernels: MachineLimits(10.0, 100.0))
    assert ours_engine.main() == 0
    ready, *lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ready == {"ready": True}
    turns = [Turn(), Turn()]
    for index, line in enumerate(lines):
        take(line, turns[index // 4])
    for turn in turns:
        assert set(turn.values) == set(turn.seconds) == {"prefill-40", "decode-3"}
        assert all(rate > 0 for rate in turn.values.values())
        assert "512" in turn.failures["too-long"]
    config = describe(resolve(str(tiny_llama)))
    extras = turns[0].extras
    assert extras["kv_token_bytes"] == token_bytes(config) == 2 * 2 * 2 * 16 * 2
    assert extras["read_bytes"] == extras["weight_bytes"] - 256 * 64 * 2
    setup = Setup(str(tiny_llama), 1, Load(), None, None, 512, 10.0)
    bounds = Comparison(ROWS, setup, {"ours": turns}, {}).bounds()
    assert bounds is not None
    flops = extras["layer_flops"] + extras["attention_flops"] * 20.5
    assert limit(ROWS[0], bounds, Load()) == pytest.approx(100e9 / flops)


def test_the_server_holds_what_the_load_needs(tiny_llama: Path) -> None:
    load = Load(clients=(2,), input_tokens=100, output_tokens=60)
    setup = Setup(str(tiny_llama), 3, load, None, None, 512, 10.0)
    with closing(Ours(setup)) as ours:
        arguments = ours.server(99).arguments
        small = ours.small_server(99).arguments
        Path(arguments[arguments.index("--cache-dir") + 1]).mkdir(parents=True)
    assert small == (*arguments, "--low-memory")
    assert arguments[1:5] == ("-m", "forebay", "serve", str(tiny_llama))
    options = dict(zip(arguments[5::2], arguments[6::2], strict=True))
    folder = Path(options.pop("--cache-dir"))
    assert folder.name == "99"
    assert not folder.parent.exists(), "what was cached goes with the comparison"
    assert options == {
        "--port": "99",
        "--kv-memory": str(340 * 256),
        "--threads": "3",
        "--quantize": "auto",
        "--activations": "int8",
    }
    assert [row["name"] for row in work(choose_rows("prefill"))] == ["prefill-512", "prefill-2048"]
