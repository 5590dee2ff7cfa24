"""`forebay doctor`: what it finds here, and what it advises on machines that lack something."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forebay.cli import examination
from forebay.core.errors import ModelNotFoundError
from forebay.kernels.build import BuildError

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "_limits", lambda: {"read_gbps": 30.0, "gemm_gflops": 200.0})


def test_json_says_all_and_exits_0_where_a_model_can_be_served(run: Run) -> None:
    outcome = run("doctor", "--json")
    findings = json.loads(outcome.out)
    assert outcome.code == 0
    assert findings["can_serve"] is True
    assert findings["cpu"]["usable_cores"] == findings["threads"]["number"] >= 1
    assert 0 < findings["memory"]["available"] <= findings["memory"]["total"]
    assert findings["limits"] == {"read_gbps": 30.0, "gemm_gflops": 200.0}
    assert findings["torch"]["version"]
    assert isinstance(findings["kernels"]["native"], bool)


def test_people_get_lines(run: Run) -> None:
    lines = run("doctor").out.splitlines()
    assert any(line.startswith("processor:") for line in lines)
    assert "memory read:  30 GB/s" in lines
    assert any(line.startswith("threads:") and "thread" in line[14:] for line in lines)


def test_missing_kernels_and_model_are_advice_and_no_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_build() -> None:
        raise BuildError("no C++ compiler was found (install g++, or set CXX)")

    def no_model(_: str) -> None:
        raise ModelNotFoundError("The embedded model is not installed.")

    monkeypatch.setattr(examination, "built_library", no_build)
    monkeypatch.setattr(examination, "resolve", no_model)
    outcome = run("doctor")
    assert outcome.code == 0
    assert "install g++" in outcome.out
    assert "The embedded model is not installed." in outcome.out


def test_without_a_needed_package_nothing_can_be_served(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "_version", lambda package: None if package == "pyzmq" else "1.0")
    outcome = run("doctor")
    assert outcome.code == 1
    assert "- Install pyzmq" in outcome.out


def test_a_package_that_is_not_there_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "forebay.cli.examination")
    monkeypatch.setitem(sys.modules, "psutil", None)
    outcome = run("doctor")
    assert outcome.code == 1
    assert "The package psutil is not installed. Run scripts/setup" in outcome.message


def test_models_of_the_hub_cache(tmp_path: Path) -> None:
    for name in ("models--Qwen--Qwen3-0.6B", "models--gpt2", "datasets--a--b"):
        (tmp_path / name).mkdir()
    assert examination.cached_models(tmp_path) == ["Qwen/Qwen3-0.6B", "gpt2"]
