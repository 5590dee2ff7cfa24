"""The machine's limits are measured once, kept, and only ever replaced by better ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.kernels import known_limits
from forebay.kernels.known_limits import remember
from forebay.kernels.limits import MachineLimits
from forebay.kernels.torch_backend import TorchKernels

KERNELS = TorchKernels()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOREBAY_CACHE", str(tmp_path))
    return tmp_path


def measured(monkeypatch: pytest.MonkeyPatch, *results: MachineLimits) -> list[MachineLimits]:
    left = list(results)
    monkeypatch.setattr(known_limits, "measure_limits", lambda _kernels, _budget: left.pop(0))
    return left


def test_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left = measured(monkeypatch, MachineLimits(read_gbps=30.0, gemm_gflops=150.0))
    first = known_limits.known_limits(KERNELS)
    assert known_limits.known_limits(KERNELS) == first == MachineLimits(read_gbps=30.0, gemm_gflops=150.0)
    assert not left


def test_the_better_of_each_is_kept() -> None:
    remember(KERNELS, MachineLimits(read_gbps=30.0, gemm_gflops=150.0))
    best = remember(KERNELS, MachineLimits(read_gbps=20.0, gemm_gflops=170.0))
    assert best == known_limits.known_limits(KERNELS) == MachineLimits(read_gbps=30.0, gemm_gflops=170.0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"read_gbps": 0, "gemm_gflops": 1}', '{"read_gbps": null}'])
def test_a_file_that_says_nothing_is_measured_anew(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(KERNELS, MachineLimits(read_gbps=1.0, gemm_gflops=1.0))
    next((folder / "limits").glob("*.json")).write_text(text)
    measured(monkeypatch, MachineLimits(read_gbps=5.0, gemm_gflops=6.0))
    assert known_limits.known_limits(KERNELS) == MachineLimits(read_gbps=5.0, gemm_gflops=6.0)


def test_a_folder_that_cant_be_written_is_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "limits").write_text("a file where the folder should be")
    limits = MachineLimits(read_gbps=5.0, gemm_gflops=6.0)
    measured(monkeypatch, limits)
    assert known_limits.known_limits(KERNELS) == limits
    assert "can't be kept" in caplog.text
