"""How many threads and where, on made-up machines; and that a process with these settings does so."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.cpus import Cpus
from forebay.engine.threads import THREAD_SETTINGS, ThreadPlan, in_force, plan_threads, thread_settings

FOUR = Cpus(((0, 4), (1, 5), (2, 6), (3, 7)))
"""Four cores of two hardware threads."""


def test_one_thread_for_each_core_and_pinned() -> None:
    plan = plan_threads(FOUR)
    assert (plan.threads, plan.places) == (4, FOUR.cores)
    assert str(plan) == "4 threads (one for each core, each on a core of its own)"
    assert thread_settings(plan, {}) == THREAD_SETTINGS | {
        "OMP_PROC_BIND": "close",
        "OMP_PLACES": "{0,4},{1,5},{2,6},{3,7}",
    }


def test_all_hardware_threads_when_asked() -> None:
    assert plan_threads(FOUR, 8).places == ((0,), (4,), (1,), (5,), (2,), (6,), (3,), (7,))


@pytest.mark.parametrize("asked", [1, 3, 5, 9])
def test_any_other_number_is_left_to_the_system(asked: int) -> None:
    plan = plan_threads(FOUR, asked)
    assert (plan.threads, plan.pinned, plan.reason) == (asked, False, "as asked")
    assert thread_settings(plan, {}) == THREAD_SETTINGS


def test_a_quota_gives_fewer_threads_that_the_system_may_move() -> None:
    plan = plan_threads(Cpus(FOUR.cores, 2.5))
    assert (plan.threads, plan.pinned) == (2, False)
    assert str(plan) == "2 threads (of 4 cores a quota gives the time of 2.5)"
    assert str(plan_threads(Cpus(FOUR.cores, 0.5))) == "1 thread (of 4 cores a quota gives the time of 0.5)"
    assert plan_threads(Cpus(FOUR.cores, 4.0)) == plan_threads(FOUR)


def test_one_core_needs_no_pinning() -> None:
    assert plan_threads(Cpus(((3,),))) == ThreadPlan(1, (), "one for each core")


@pytest.mark.parametrize("name", ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"])
def test_what_the_user_has_set_stays(name: str) -> None:
    environment = {name: "0-3", "GOMP_SPINCOUNT": "7"}
    plan = plan_threads(FOUR)
    assert thread_settings(plan, environment) == {}
    assert not in_force(plan, environment).pinned
    assert in_force(plan, thread_settings(plan, {})) == plan
    assert not in_force(plan, {}).pinned


cores = st.lists(st.integers(1, 4), min_size=1, max_size=64).map(
    lambda sizes: tuple(tuple(range(10 * i, 10 * i + size)) for i, size in enumerate(sizes))
)


@given(cores, st.none() | st.floats(0.01, 100), st.none() | st.integers(1, 300))
def test_places_are_as_many_as_threads_and_share_no_cpu(
    cores: tuple[tuple[int, ...], ...], quota: float | None, asked: int | None
) -> None:
    plan = plan_threads(Cpus(cores, quota), asked)
    assert plan.threads == asked if asked else 1 <= plan.threads <= len(cores)
    cpus = [cpu for place in plan.places for cpu in place]
    assert len(set(cpus)) == len(cpus)
    if plan.pinned:
        assert len(plan.places) == plan.threads
        assert set(cpus) == {cpu for core in cores for cpu in core}, "no CPU is left unused"


PINNED = """
import json, os, threading
from forebay.core.cpus import AT_START, free_to_move
import torch
torch.set_num_threads(2)
seen = []
with free_to_move():
    mover = threading.Thread(target=lambda: seen.append(sorted(os.sched_getaffinity(0))))
    mover.start()
    mover.join()
others = set(os.listdir("/proc/self/task"))
torch.ones(1 << 20).exp_()
workers = set(os.listdir("/proc/self/task")) - others
where = [sorted(os.sched_getaffinity(int(t))) for t in workers]
print(json.dumps([sorted(os.sched_getaffinity(0)), where, seen, sorted(AT_START)]))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU only")
def test_openmp_does_so_and_other_threads_stay_free() -> None:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    plan = plan_threads(Cpus(((first,), (second,))))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    command = ["taskset", "-c", f"{first},{second}", sys.executable, "-c", PINNED]
    done = subprocess.run(
        command, env=environment | thread_settings(plan, environment), check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == [[first], [[second]], [[first, second]], [first, second]]
