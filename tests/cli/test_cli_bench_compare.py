"""`forebay bench compare`: files, table, JSON and exit codes, with sides that measure nothing real."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.bench import peers

from forebay.bench.compare import comparison
from forebay.bench.compare.processes import Command, started
from forebay.bench.compare.turns import Turn

Run = Callable[..., Any]


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "Ours", lambda _setup: peers.Scripted("ours", 100.0, []))


@pytest.mark.usefixtures("ours")
def test_the_table_the_files_and_what_is_left_out(run: Run, tmp_path: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    options = ("--peers", f"llama.cpp={peers.llama_cpp(binaries)}", "--rows", "prefill", "--turns", "3")
    outcome = run("bench", "compare", *options, "--output", str(tmp_path / "out"), "--json")
    figures = json.loads(outcome.out)
    assert outcome.code == 0
    assert figures["turns"] == {"ours": 3, "llama.cpp": 3}
    row = figures["rows"]["prefill-512"]
    assert (row["ours"], row["llama.cpp"], row["ratio_to_best"]) == (200.0, 512.5, pytest.approx(0.3902))
    assert row["left_out"] == {"vllm": "not named with --peers"}
    assert "vllm is left out: not named with --peers" in outcome.message
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == figures
    assert (tmp_path / "out" / "report.md").read_text().startswith("| work | unit | ours | llama.cpp | vllm |")


@pytest.mark.usefixtures("ours")
def test_a_row_that_we_fail_is_an_error(run: Run, tmp_path: Path) -> None:
    outcome = run("bench", "compare", "--rows", "start,prefill-512", "--turns", "1", "--output", str(tmp_path))
    assert outcome.code == 1
    assert "ours is left out of start: it has no server" in outcome.out


def test_sigterm_ends_what_was_started(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[psutil.Process] = []

    class Sleeping(peers.Scripted):
        def engine(self, rows: Any, turn: Turn) -> None:
            with started(Command((sys.executable, "-c", "import time; time.sleep(60)"))) as process:
                begun.append(psutil.Process(process.popen.pid))
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(20)

    monkeypatch.setattr(comparison, "Ours", lambda _setup: Sleeping("ours", 1.0, []))
    before = signal.getsignal(signal.SIGTERM)
    assert run("bench", "compare", "--output", str(tmp_path)).code == 128 + signal.SIGTERM
    assert not begun[0].is_running()
    assert json.loads((tmp_path / "report.json").read_text())["turns"] == {"ours": 1}
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--rows", "sorting"), "There is no row 'sorting'"),
        (("--peers", "sglang=/x"), "'sglang=/x' is no peer"),
        (("--output", "/proc/none/x"), "can't be made"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    run: Run, options: tuple[str, ...], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run("bench", "compare", *options)
    assert outcome.code == 1
    assert reason in outcome.message
