"""What is read of affinity, topology and cgroups, on made-up system files and on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.cpus import Cpus, cores_of, cpu_quota, free_to_move, read_cpus, usable_cores


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_quota_of_cgroup_version_2_is_the_smallest_on_the_way_up(tmp_path: Path) -> None:
    write(tmp_path / "membership", "0::/pod/box\n")
    mount = tmp_path / "cgroup"
    write(mount / "pod/box/cpu.max", "max 100000\n")
    assert cpu_quota(tmp_path / "membership", mount) is None
    write(mount / "pod/cpu.max", "150000 100000\n")
    assert cpu_quota(tmp_path / "membership", mount) == 1.5
    write(mount / "pod/box/cpu.max", "50000 100000\n")
    assert cpu_quota(tmp_path / "membership", mount) == 0.5


def test_a_container_that_sees_only_its_own_group(tmp_path: Path) -> None:
    write(tmp_path / "membership", "0::/system.slice/docker-1234.scope\n")
    write(tmp_path / "cgroup/cpu.max", "300000 100000\n")
    assert cpu_quota(tmp_path / "membership", tmp_path / "cgroup") == 3.0


@pytest.mark.parametrize("folder", ["cpu,cpuacct", "cpu"])
def test_quota_of_cgroup_version_1(tmp_path: Path, folder: str) -> None:
    write(tmp_path / "membership", "3:cpu,cpuacct:/docker/x\n2:memory:/docker/x\n")
    group = tmp_path / "cgroup" / folder
    write(group / "cpu.cfs_quota_us", "-1\n")
    write(group / "cpu.cfs_period_us", "100000\n")
    assert cpu_quota(tmp_path / "membership", tmp_path / "cgroup") is None
    write(group / "cpu.cfs_quota_us", "400000\n")
    assert cpu_quota(tmp_path / "membership", tmp_path / "cgroup") == 4.0
    write(group / "docker/x/cpu.cfs_quota_us", "250000\n")
    write(group / "docker/x/cpu.cfs_period_us", "100000\n")
    assert cpu_quota(tmp_path / "membership", tmp_path / "cgroup") == 2.5


@pytest.mark.parametrize("text", ["", "max", "100000", "many 100000", "100000 0"])
def test_a_file_that_says_nothing_is_no_quota(tmp_path: Path, text: str) -> None:
    write(tmp_path / "membership", "0::/box\n")
    write(tmp_path / "cgroup/box/cpu.max", text)
    assert cpu_quota(tmp_path / "membership", tmp_path / "cgroup") is None


def test_no_cgroups_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "none", tmp_path) is None


def test_hardware_threads_of_a_core_stand_together(tmp_path: Path) -> None:
    for cpu, siblings in {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}.items():
        write(tmp_path / f"cpu{cpu}/topology/thread_siblings_list", siblings + "\n")
    assert cores_of({5, 4, 1, 0}, tmp_path) == ((0, 4), (1, 5))
    assert cores_of({4, 5}, tmp_path) == ((4,), (5,)), "only those that the process may use"
    assert cores_of({0, 9}, tmp_path) == ((0,), (9,)), "the system says nothing of the ninth"


@given(st.integers(1, 300), st.none() | st.floats(0.001, 1000))
def test_threads_fit_into_cores_and_quota(cores: int, quota: float | None) -> None:
    threads = usable_cores(Cpus(tuple((cpu,) for cpu in range(cores)), quota))
    assert 1 <= threads <= cores
    if quota is None or quota >= cores:
        assert threads == cores
    else:
        assert threads <= max(1, quota) < threads + 1 or threads == 1


def test_this_machine_as_it_was_when_the_process_started() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert {cpu for core in read_cpus().cores for cpu in core} == allowed
        with free_to_move():
            assert os.sched_getaffinity(0) == allowed
        assert os.sched_getaffinity(0) == {min(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_process_started_on_one_cpu_has_one_core() -> None:
    script = "from forebay.core.cpus import read_cpus; print(len(read_cpus().cores))"
    command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), sys.executable, "-c", script]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "1\n"
