"""The plots: which are drawn, from which figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

plots = pytest.importorskip("forebay.bench.compare.plots", exc_type=ModuleNotFoundError)

LOAD = {"median_ttft_ms": 10.0, "p99_itl_ms": 5.0, "turns": 1}
FIGURES: dict[str, Any] = {
    "model": "/models/tiny.gguf",
    "machine": {"cores": 2, "cpu": "AMD EPYC"},
    "sides": {"ours": {}, "vllm": {}},
    "rows": {"decode-1": {"ours": 10.0, "vllm": 1.0}, "decode-8": {"ours": 50.0}, "decode-32": {"left_out": {}}},
    "loads": {"ours": {"1": LOAD, "16": LOAD}, "vllm": {}},
}


def test_curves() -> None:
    assert plots.batch_curves(FIGURES) == {"ours": {1: 10.0, 8: 50.0}, "vllm": {1: 1.0}}
    assert plots.load_curves(FIGURES, "p99_itl_ms") == {"ours": {1: 5.0, 16: 5.0}, "vllm": {}}
    assert plots.load_curves(FIGURES, "output_throughput") == {"ours": {}, "vllm": {}}


def test_only_what_has_figures_is_drawn(tmp_path: Path) -> None:
    drawn = plots.draw(FIGURES, tmp_path)
    assert [path.name for path in drawn] == ["throughput-over-batch.png", "latency-over-load.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    assert plots.draw({**FIGURES, "rows": {}, "loads": {"ours": {}}}, tmp_path) == []
