"""What is read of the processor, on made-up system files and on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forebay.kernels.cpu import cpu_info, cpu_quota, find_compiler


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


@pytest.mark.parametrize("folder", ["cpu,cpuacct", "cpu"])
def test_quota_of_cgroup_version_1(tmp_path: Path, folder: str) -> None:
    write(tmp_path / "membership", "3:cpu,cpuacct:/docker/x\n2:memory:/docker/x\n")
    group = tmp_path / "cgroup" / folder
    write(group / "cpu.cfs_quota_us", "-1\n")
    write(group / "cpu.cfs_period_us", "100000\n")
    assert cpu_quota(tmp_path / "membership", tmp_path / "cgroup") is None
    write(group / "cpu.cfs_quota_us", "400000\n")
    assert cpu_quota(tmp_path / "membership", tmp_path / "cgroup") == 4.0


def test_no_cgroups_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "none", tmp_path) is None


def test_this_machine() -> None:
    info = cpu_info()
    assert info.model
    assert 1 <= info.usable_cores <= info.physical_cores <= len(os.sched_getaffinity(0))
    assert info.compiler == find_compiler()


def test_fewer_cpus_allowed_fewer_cores() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cpu_info().usable_cores == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_the_compiler_is_the_one_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "my-compiler"
    own.write_text("")
    own.chmod(0o755)
    monkeypatch.setenv("CXX", str(own))
    assert find_compiler() == str(own)
    monkeypatch.setenv("CXX", "not-there")
    assert find_compiler() is None
