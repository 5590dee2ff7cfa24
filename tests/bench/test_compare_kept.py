"""Processes that are kept between turns: real trees that are stopped, go on, die meanwhile, and are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.bench import peers

from forebay.bench.compare import program as program_module
from forebay.bench.compare import serving
from forebay.bench.compare.kept import Kept
from forebay.bench.compare.processes import Command, PeerError, Running, started
from forebay.bench.compare.program import Program, parse_line, take
from forebay.bench.compare.rows import Load, choose_rows
from forebay.bench.compare.stopping import carry_on, stop, whole
from forebay.bench.compare.turns import Turn

SLEEP = "import time; time.sleep(60)"
TREE = f"""
import subprocess, sys, time
for new in (False, True):
    subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=new)
print("ready", flush=True)
time.sleep(60)
"""
ROWS = choose_rows("decode-8,decode-32")


def python(source: str) -> Command:
    return Command((sys.executable, "-c", source))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def prints_ready(process: Running) -> None:
    process.check_alive()
    until(lambda: "ready" in process.output())


def states(pid: int) -> set[str]:
    return {process.status() for process in whole(pid)}


def test_a_tree_stops_and_goes_on_as_a_whole() -> None:
    with started(python(TREE)) as process:
        prints_ready(process)
        pid = process.popen.pid
        until(lambda: len(whole(pid)) == 3)
        assert stop(pid)
        assert states(pid) == {psutil.STATUS_STOPPED}
        carry_on(pid)
        until(lambda: psutil.STATUS_STOPPED not in states(pid))
        assert stop(pid)
        family = whole(pid)
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family)


def test_what_has_ended_can_not_be_stopped() -> None:
    with started(python("pass")) as process:
        process.popen.wait()
        assert not stop(process.popen.pid)


def test_a_slow_process_is_kept_stopped_and_a_quick_one_is_started_anew() -> None:
    for slow in (True, False):
        with contextlib.closing(Kept(keep_above_s=0.0 if slow else 60.0)) as kept:
            with kept.use(lambda: python(TREE), prints_ready) as first:
                pid = first.process.popen.pid
                assert first.start_s is not None
            assert kept.waiting == slow
            assert states(pid) == ({psutil.STATUS_STOPPED} if slow else set())
            with kept.use(lambda: python(TREE), prints_ready) as second:
                assert (second.process.popen.pid == pid) == slow
                assert (second.start_s is None) == slow
        assert whole(pid) == []


def test_one_that_died_or_failed_while_kept_is_started_anew() -> None:
    with contextlib.closing(Kept(keep_above_s=0.0)) as kept:
        with kept.use(lambda: python(TREE), prints_ready) as first:
            pid = first.process.popen.pid
        os.kill(pid, signal.SIGKILL)
        first.process.popen.wait()
        with kept.use(lambda: python(TREE), prints_ready) as second:
            assert second.start_s is not None
        with pytest.raises(PeerError, match="broken"), kept.use(lambda: python(TREE), prints_ready):
            raise PeerError("broken")
        assert not kept.waiting


def test_one_that_is_never_ready_is_ended() -> None:
    with contextlib.closing(Kept()) as kept:
        with pytest.raises(PeerError, match="ended with code 3"), kept.use(lambda: python(peers.FAILING), wait_for_end):
            pass
        assert not kept.waiting


def wait_for_end(process: Running) -> None:
    process.popen.wait()
    process.check_alive()


def test_a_kept_program_answers_turn_after_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module, "Kept", lambda: Kept(keep_above_s=0.0))
    starts: list[int] = []

    def command() -> Command:
        starts.append(1)
        return Command((str(peers.vllm(tmp_path)), "program", "{}"))

    with contextlib.closing(Program(20.0)) as program:
        for _ in range(3):
            turn = Turn()
            program.measure(command, ROWS, turn)
            assert (turn.values, turn.failures) == ({"decode-8": 7.0}, {"decode-32": "too many"})
            assert turn.seconds == {"decode-8": 0.5}
    assert len(starts) == 1


READY = """import sys, time
print('{"ready": true}', flush=True)
for line in sys.stdin:
    print('{"row": "decode-8", "value": 2, "seconds": 1}', flush=True)
"""


def test_a_program_that_ends_leaves_what_it_gave() -> None:
    turn = Turn()
    with contextlib.closing(Program(20.0)) as program:
        program.measure(lambda: python(f"{READY}    sys.exit('gone')"), ROWS, turn)
    assert turn.values == {"decode-8": 2.0}
    assert "gone" in turn.failures["decode-32"]


def test_a_program_that_fails_after_it_was_stopped_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module, "Kept", lambda: Kept(keep_above_s=0.0))
    once = f"""{READY}    print('{{"row": "decode-32", "value": 3, "seconds": 1}}\\n{{"extras": {{}}}}', flush=True)
    sys.stdin.readline()
    sys.exit('gone')"""
    starts: list[int] = []

    def command() -> Command:
        starts.append(1)
        return python(once)

    with contextlib.closing(Program(20.0)) as program:
        for expected in (1, 2, 3):
            turn = Turn()
            program.measure(command, ROWS, turn)
            assert (turn.values, turn.failures) == ({"decode-8": 2.0, "decode-32": 3.0}, {})
            assert len(starts) == expected
            assert program._kept.waiting == (expected == 1)


def test_a_kept_server_gives_start_and_memory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "Kept", lambda: Kept(keep_above_s=0.0))
    binary = str(peers.llama_cpp(tmp_path) / "llama-server")
    load = Load(clients=(1, 2), input_tokens=6, output_tokens=12)
    rows, turns = choose_rows("serving,start,memory"), [Turn() for _ in range(3)]
    with contextlib.closing(serving.Server(lambda port: Command((binary, "--port", str(port))), load, 20.0)) as server:
        for number, turn in enumerate(turns[:2]):
            server.measure(rows, number, turn)
        process = server._kept._process
        assert process is not None
        os.kill(process.popen.pid, signal.SIGKILL)
        process.popen.wait()
        server.measure(rows, 2, turns[2])
    of_load = {"serving", "serving-itl", "serving-ttft"}
    assert [set(turn.values) - of_load for turn in turns] == [{"start", "memory"}, set(), {"start", "memory"}]
    assert all(of_load <= set(turn.values) and not turn.failures for turn in turns)


def test_a_program_that_hangs_leaves_what_it_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module, "Kept", lambda: Kept(keep_above_s=0.0))
    hanging = f"""{READY}    print('{{"extras": {{}}}}' if "decode-1" in line else "", flush=True)"""
    turn = Turn()
    with contextlib.closing(Program(20.0)) as program:
        program.measure(lambda: python(hanging), choose_rows("decode-1"), Turn())
        program._timeout_s = 0.5
        running = program._kept._process
        assert running is not None
        carry_on(running.popen.pid)
        with pytest.raises(PeerError, match="no figure within 0 s"):
            program._ask(running, ROWS, turn)
    assert turn.values == {"decode-8": 2.0}


def test_lines_that_say_nothing() -> None:
    for text in ("", "log", "[1]", "{oops", "1"):
        assert parse_line(text) is None
    for line in ({"row": "a", "value": "x", "seconds": 1}, {"value": 1}, {"extras": [1]}):
        with pytest.raises(PeerError, match="says nothing of a row"):
            take(line, Turn())
    turn = Turn()
    take({"else": 1}, turn)
    assert turn == Turn()
