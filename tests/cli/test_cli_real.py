"""The commands with a real engine: a server from start to Ctrl-C, a chat of its own, the engine's benchmark."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

Run = Callable[..., Any]


@pytest.fixture
def served() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`forebay serve` as a process of its own on a free port, once it says that it listens; and its address."""
    command = [
        sys.executable,
        "-m",
        "forebay",
        "serve",
        "--port",
        "0",
        "--kv-memory",
        "64MiB",
        "--max-model-len",
        "512",
        "--host-pool",
        "0",
        "--cache-disk",
        "0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        report = ""
        while "Try it" not in report:
            line = process.stderr.readline()
            assert line, f"the server ended: {report}"
            report += line
        yield process, report.split("address")[1].split()[0]
        if process.poll() is None:
            process.kill()


def test_a_server_answers_the_other_commands_and_ends_on_ctrl_c(
    run: Run, served: tuple[subprocess.Popen[str], str]
) -> None:
    process, url = served
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    chat = run("chat", "--base-url", url, "-m", "Say hello.", "--max-tokens", "8", "--temperature", "0")
    assert (chat.code, bool(chat.out.strip())) == (0, True)
    load = ("--num-prompts", "3", "--random-input-len", "24", "--random-output-len", "4", "--ignore-eos", "--json")
    bench = run("bench", "serve", "--base-url", url, *load)
    report = json.loads(bench.out)
    assert (bench.code, report["completed"], report["total_output_tokens"]) == (0, 3, 12)
    assert report["total_input_tokens"] == 3 * 24
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_the_server_ends_with_an_error_when_its_engine_dies(served: tuple[subprocess.Popen[str], str]) -> None:
    process, url = served
    assert httpx2.get(f"{url}/health").status_code == 200
    for child in psutil.Process(process.pid).children():
        child.kill()
    assert process.wait(30) == 1
    assert process.stderr is not None
    assert "engine's process died" in process.stderr.read()


def test_a_chat_starts_and_ends_its_own_engine(run: Run) -> None:
    short = ("--max-tokens", "6", "--temperature", "0", "--kv-memory", "32MiB")
    first = run("chat", "-m", "Say hello.", *short)
    assert (first.code, bool(first.out.strip())) == (0, True)
    assert not [child for child in psutil.Process().children() if "forebay.engine.worker" in " ".join(child.cmdline())]


def test_the_engines_benchmark_reports_every_figure(
    run: Run, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forebay.bench import engine
    from forebay.kernels.limits import MachineLimits

    monkeypatch.setattr(engine, "measure_limits", lambda _: MachineLimits(read_gbps=20.0, gemm_gflops=100.0))
    monkeypatch.setattr(engine, "remember", lambda _, measured: measured)
    sizes = ("--prefill", "32", "--prefill", "64", "--rows", "1", "--rows", "3", "--context", "20", "--repeat", "1")
    outcome = run("bench", "engine", str(tiny_llama), *sizes, "--json")
    report = json.loads(outcome.out)
    assert outcome.code == 0
    assert set(report["prefill"]) == {"32", "64"}
    assert set(report["decode"]) == {"1", "3"}
    assert min(*report["prefill"].values(), *report["decode"].values()) > 0
    assert report["limits"] == {"gemm_gflops": 100.0, "read_gbps": 20.0}
    assert report["mfu_prefill"] == report["mfu_prefill_by_length"]["32"]
    people = run("bench", "engine", str(tiny_llama), *sizes)
    assert "of the memory limit" in people.out


def test_a_prompt_that_does_not_fit_the_model_is_one_line(run: Run, tiny_llama: Path) -> None:
    outcome = run("bench", "engine", str(tiny_llama), "--prefill", "600", "--repeat", "1")
    assert outcome.code == 1
    assert "512" in outcome.err.splitlines()[-1]
