"""The comparison's processes: real programs that fail, hang or print what peers print, and who ends them."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.bench import peers

from forebay.bench.compare.comparison import Budget, Servers, compare, parse_peers, prepare, take_turn
from forebay.bench.compare.llama_cpp import LlamaCpp, parse_batched_bench, parse_bench
from forebay.bench.compare.processes import Command, PeerError, run, started
from forebay.bench.compare.report import report
from forebay.bench.compare.rows import Load, choose_rows
from forebay.bench.compare.side import Setup, Side
from forebay.bench.compare.table import markdown
from forebay.bench.compare.turns import Turn
from forebay.bench.compare.vllm import Vllm, best_dtype
from forebay.core.errors import ConfigError

LOAD = Load(clients=(1, 2), requests_per_client=2, input_tokens=6, output_tokens=12)
SETUP = Setup("m", 1, LOAD, "weights.gguf", "folder", 8192, timeout_s=20.0)


def python(source: str) -> Command:
    return Command((sys.executable, "-c", source))


def turns_of(side: Side, rows: str, setup: Setup = SETUP, turns: int = 1) -> list[Turn]:
    """What the side measures in so many turns."""
    server = Servers(side, setup)
    taken = []
    with contextlib.closing(server), contextlib.closing(side):
        for number in range(turns):
            taken.append(Turn())
            take_turn(side, server, choose_rows(rows), number, taken[-1])
    return taken


def test_output_comes_back_and_failures_bring_the_last_words() -> None:
    assert run(python("print('hello')"), 20).strip() == "hello"
    with pytest.raises(PeerError, match=r"ended with code 3.*can't be read"):
        run(python(peers.FAILING), 20)
    with pytest.raises(PeerError, match=r"did not end within 0 s"):
        run(python("import time; time.sleep(60)"), 0.3)
    with pytest.raises(PeerError, match="can't be started"):
        run(Command(("/nowhere/engine",)), 1)


def test_leaving_ends_the_process_and_all_that_it_started() -> None:
    child = "import time; time.sleep(60)"
    source = f"""
import subprocess, sys, time
for new in (False, True):
    subprocess.Popen([sys.executable, "-c", {child!r}], start_new_session=new)
time.sleep(60)
"""
    with started(python(source)) as process:
        main = psutil.Process(process.popen.pid)
        deadline = time.monotonic() + 20
        while len(main.children(recursive=True)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        family = [main, *main.children(recursive=True)]
        assert len(family) == 3
        assert process.memory_bytes() > 1 << 20
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family)


def test_the_environment_is_added_to_ours() -> None:
    command = Command((sys.executable, "-c", "import os; print(os.environ['A'], 'PATH' in os.environ)"), {"A": "b"})
    assert run(command, 20).split() == ["b", "True"]
    assert str(command).startswith("A=b ")


def test_figures_of_llama_bench() -> None:
    assert parse_bench('[{"avg_ts": 12.5}]') == 12.5
    assert parse_batched_bench('\n{"speed_tg": 3.5, "speed_pp": 9}\n') == 3.5
    for bad in ("", "[]", '[{"n": 1}]', "oops"):
        with pytest.raises(PeerError, match="llama-bench printed no figures"):
            parse_bench(bad)
    for bad in ("", "oops", '{"pp": 1}'):
        with pytest.raises(PeerError, match="llama-batched-bench printed"):
            parse_batched_bench(bad)


def test_llama_cpp_measures_each_row_with_the_right_program(tmp_path: Path) -> None:
    side = LlamaCpp(peers.llama_cpp(tmp_path), SETUP)
    turn, later = turns_of(side, "all", turns=2)
    assert turn.failures == later.failures == {}
    rates = {"prefill-512": 512.5, "prefill-2048": 2048.5, "decode-1": 64.5, "decode-1-1024": 64.5}
    rates |= {"decode-8": 80.0, "decode-32": 320.0, "decode-8-4000": 80.0}
    assert {name: turn.values[name] for name in rates} == rates
    assert set(turn.values) - set(rates) == {
        "serving",
        "serving-itl",
        "serving-ttft",
        "start",
        "memory",
        "memory-low",
    }
    assert turn.values["memory-low"] == turn.values["memory"], "llama.cpp has no mode for less memory"
    assert set(turn.loads) == {1, 2}
    assert set(later.loads) == {2}
    assert set(turn.seconds) == set(later.seconds) == set(turn.values) == set(later.values)
    assert all(load["total_input_tokens"] == clients * 2 * 7 for clients, load in turn.loads.items())
    assert side.describe()["version"] == "version: fake 1"


class _WithSmallMode(LlamaCpp):
    """A peer that has a mode for less memory: another server by itself."""

    def small_server(self, port: int) -> Command:
        command = super().server(port)
        return replace(command, arguments=(*command.arguments, "--small"))

    def server(self, port: int) -> Command:
        return python("raise SystemExit('the usual server is not asked')")


def test_the_mode_for_less_memory_is_a_server_of_its_own(tmp_path: Path) -> None:
    (turn,) = turns_of(_WithSmallMode(peers.llama_cpp(tmp_path), SETUP), "memory-low")
    assert turn.failures == {}
    assert set(turn.values) == set(turn.seconds) == {"memory-low"}
    (turn,) = turns_of(_WithSmallMode(peers.llama_cpp(tmp_path, server=peers.FAILING), SETUP), "memory-low")
    assert "can't be read" in turn.failures["memory-low"]
    assert turn.values == {}


def test_answers_that_are_too_short_are_no_measurement(tmp_path: Path) -> None:
    side = LlamaCpp(peers.llama_cpp(tmp_path, short_by=1), SETUP)
    (turn,) = turns_of(side, "serving,start")
    assert list(turn.values) == ["start"]
    assert "another length than 12 tokens" in turn.failures["serving"]


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    side = LlamaCpp(peers.llama_cpp(tmp_path, server=peers.FAILING), SETUP)
    (turn,) = turns_of(side, "start,memory")
    assert turn.values == {}
    assert "ended with code 3" in turn.failures["start"]
    assert "can't be read" in turn.failures["memory"]


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    setup = replace(SETUP, timeout_s=0.5)
    side = LlamaCpp(peers.llama_cpp(tmp_path, server="import time; time.sleep(60)\n"), setup)
    (turn,) = turns_of(side, "start", setup)
    assert "gave no token in time" in turn.failures["start"]


def test_vllm_runs_our_program_in_its_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "auto")
    side = Vllm(peers.vllm(tmp_path), SETUP)
    turn, later = turns_of(side, "decode,start", turns=2)
    assert turn.values == later.values == dict.fromkeys(("decode-1", "decode-1-1024", "decode-8", "decode-8-4000"), 7.0)
    assert turn.failures["decode-32"] == "too many"
    assert "no server here" in turn.failures["start"]
    assert later.failures == turn.failures
    described = side.describe()
    assert described["version"] == "9.9"
    assert "DecodeBenchConnector" in described["engine"]
    assert side.server(7).environment["VLLM_CPU_OMP_THREADS_BIND"] == "auto"
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND")
    cores = Vllm(peers.vllm(tmp_path), SETUP).server(7).environment["VLLM_CPU_OMP_THREADS_BIND"]
    assert cores == str(min(os.sched_getaffinity(0)))


def test_peers_are_named_with_their_paths() -> None:
    assert parse_peers("llama.cpp=/a, vllm=/b") == {"llama.cpp": Path("/a"), "vllm": Path("/b")}
    assert parse_peers("") == {}
    for bad in ("llama.cpp", "sglang=/x", "vllm="):
        with pytest.raises(ConfigError, match="is no peer"):
            parse_peers(bad)


def test_a_peer_that_is_not_there_is_left_out_with_a_word(tmp_path: Path) -> None:
    setup = replace(SETUP, model="smollm2", hf_folder=None)
    rows = choose_rows("start")
    comparison, sides = prepare({"llama.cpp": tmp_path, "vllm": tmp_path / "python"}, rows, setup)
    assert [side.name for side in sides] == ["ours"]
    assert "has no llama-bench and no llama-batched-bench" in comparison.left_out["llama.cpp"]
    assert "--hf-folder" in comparison.left_out["vllm"]
    comparison, _ = prepare({}, rows, setup)
    assert set(comparison.left_out) == {"llama.cpp", "vllm"}


def test_turns_are_taken_in_order_and_a_failed_row_is_left_out() -> None:
    log: list[str] = []
    rows = choose_rows("prefill-512,decode-1,start")
    sides = [peers.Scripted("ours", 100.0, log), peers.Scripted("llama.cpp", 10.0, log, fails="decode-1")]
    comparison, _ = prepare({}, rows, replace(SETUP, model="smollm2"))
    comparison.turns = {"ours": [], "llama.cpp": []}
    comparison.described = {side.name: side.describe() for side in sides}
    comparison.left_out = {"vllm": "not named"}
    written: list[int] = []
    stages: list[str] = []
    compare(comparison, sides, Budget(3), lambda stage, _share: stages.append(stage), lambda: written.append(1))
    assert [side.closed for side in sides] == [1, 1]
    assert stages[1] == "turn 1 of 3: llama.cpp"
    assert stages[2] == "turn 2 of 3: llama.cpp, about 0 min left"
    both, one = "prefill-512,decode-1", "prefill-512"
    expected = [("ours", both), ("llama.cpp", both), ("llama.cpp", both), ("ours", both), ("ours", both)]
    assert log == [f"{name}:{work}" for name, work in [*expected, ("llama.cpp", one)]]
    assert len(written) == 6
    figures = report(comparison)
    first = figures["rows"]["prefill-512"]
    assert (first["ours"], first["llama.cpp"], first["ratio_to_best"], first["limit"]) == (200.0, 20.0, 10.0, 1000.0)
    assert (first["of_limit"], first["of_float_limit"], first["goal_met"]) == (0.2, 0.8, True)
    assert first["left_out"] == {"vllm": "not named"}
    assert (first["min"], first["max"]) == ({"ours": 100, "llama.cpp": 10}, {"ours": 300, "llama.cpp": 30})
    assert first["turns"] == {"ours": 3, "llama.cpp": 3}
    assert "vllm" not in first
    second = figures["rows"]["decode-1"]
    assert (second["ratio_to_best"], second["goal_met"], second["left_out"]["llama.cpp"]) == (None, None, "it broke")
    assert figures["rows"]["start"]["left_out"]["ours"] == "it has no server"
    text = markdown(figures)
    assert "| prefill, 512 tokens | tokens/s | 200 (100 to 300) | 20 (10 to 30) | - | 10 | 1,000 | 20% |" in text
    assert "- llama.cpp is left out of decode-1: it broke" in text
    assert "Our weights take 8 bits a parameter in memory." in text
    assert "- vllm is left out of every row: not named" in text
    assert "Medians of 3 turns (lowest to highest)." in text


def test_both_of_our_ways_to_multiply_stand_beside_the_peers() -> None:
    rows = choose_rows("decode-8")
    comparison, own = prepare({}, rows, replace(SETUP, model="smollm2", activations="both"))
    assert [side.name for side in own] == ["ours", "ours-fp32"]
    assert "--activations int8" in comparison.described["ours"]["server"]
    assert "--activations fp32" in comparison.described["ours-fp32"]["server"]
    log: list[str] = []
    speeds = {"ours": 400.0, "ours-fp32": 150.0, "llama.cpp": 100.0, "vllm": 80.0}
    sides = [peers.Scripted(name, speed, log) for name, speed in speeds.items()]
    comparison.turns = {name: [] for name in speeds}
    comparison.described = {side.name: side.describe() for side in sides}
    comparison.left_out = {}
    compare(comparison, sides, Budget(1), lambda _stage, _share: None, lambda: None)
    figures = report(comparison)
    row = figures["rows"]["decode-8"]
    assert (row["ours"], row["ours-fp32"], row["best_peer"], row["ratio_to_best"]) == (400, 150, "llama.cpp", 4.0)
    assert (row["goal_met"], row["fp32"]["goal_met"], row["fp32"]["ratio_to_best"]) == (True, False, 1.5)
    text = markdown(figures)
    assert "| unit | ours | ours-fp32 | llama.cpp | vllm |" in text
    assert "| 400 | 150 | 100 | 80 | 4 |" in text


def test_an_interrupted_turn_keeps_what_it_has() -> None:
    class Interrupted(peers.Scripted):
        def engine(self, rows: Any, turn: Turn) -> None:
            super().engine(rows[:1], turn)
            raise KeyboardInterrupt

    side = Interrupted("ours", 100.0, [])
    comparison, _ = prepare({}, choose_rows("prefill"), replace(SETUP, model="smollm2"))
    with pytest.raises(KeyboardInterrupt):
        compare(comparison, [side], Budget(3), lambda _stage, _share: None, lambda: None)
    assert comparison.turns["ours"][0].values == {"prefill-512": 100.0}
    assert side.closed == 1


def test_the_type_that_vllm_computes_in() -> None:
    assert best_dtype(("avx2", "fma")) == "float32"
    assert best_dtype(("avx512f", "avx2")) == best_dtype(("asimd", "bf16")) == "bfloat16"
