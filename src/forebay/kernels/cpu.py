"""What this machine's processor offers: usable cores, instruction sets, compiler. No torch, and nothing is measured."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_TELLING_FLAGS = ("avx512f", "avx512_bf16", "amx_bf16", "avx512_vnni", "avx2", "fma", "sve", "asimd", "bf16")
"""Instruction sets that change how fast the kernels are or can become, most telling first."""


@dataclass(frozen=True, slots=True)
class CpuInfo:
    """The processor as this process sees it."""

    model: str
    architecture: str
    physical_cores: int
    """Cores (not hardware threads) among the CPUs that this process may run on."""
    usable_cores: int
    """Threads worth starting: physical cores, or fewer where a cgroup's quota allows less time."""
    flags: tuple[str, ...]
    """Of the instruction sets that matter here, those this processor has."""
    compiler: str | None
    """Path of the C++ compiler that would build the native kernels."""


def cpu_info() -> CpuInfo:
    """Read what the system says of its processor; takes milliseconds."""
    fields = _cpu_fields(Path("/proc/cpuinfo"))
    present = cpu_flags()
    physical = _physical_cores(os.sched_getaffinity(0), Path("/sys/devices/system/cpu"))
    quota = cpu_quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return CpuInfo(
        model=fields.get("model name") or platform.processor() or platform.machine(),
        architecture=platform.machine(),
        physical_cores=physical,
        usable_cores=physical if quota is None else max(1, min(physical, round(quota))),
        flags=tuple(flag for flag in _TELLING_FLAGS if flag in present),
        compiler=find_compiler(),
    )


def cpu_flags() -> frozenset[str]:
    """Every instruction-set flag that the system names; empty where it names none."""
    fields = _cpu_fields(Path("/proc/cpuinfo"))
    return frozenset((fields.get("flags") or fields.get("Features") or "").split())


def find_compiler() -> str | None:
    """The C++ compiler to build with: $CXX, else g++ or c++ on the path; None when there is none."""
    chosen = os.environ.get("CXX")
    for name in (chosen,) if chosen else ("g++", "c++"):
        path = shutil.which(name)
        if path is not None:
            return path
    return None


def cpu_quota(memberships: Path, mount: Path) -> float | None:
    """CPUs' worth of time that cgroups (version 1 or 2) allow: the smallest quota on the way up; None when unlimited.

    `memberships` is a /proc/PID/cgroup file, `mount` where the hierarchies are mounted.
    """
    try:
        lines = memberships.read_text().splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            quotas += _quotas_upward(mount, path, _quota_v2)
        elif "cpu" in controllers.split(","):
            for name in (controllers, "cpu"):
                quotas += _quotas_upward(mount / name, path, _quota_v1)
    return min(quotas, default=None)


def _quotas_upward(mount: Path, path: str, read: Callable[[Path], float | None]) -> list[float]:
    """Quotas of the group at `path` and of all above it (a container may see only the top)."""
    group = mount / path.lstrip("/")
    groups = [group, *(above for above in group.parents if above == mount or mount in above.parents)]
    found = (read(each) for each in groups)
    return [quota for quota in found if quota is not None]


def _quota_v2(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _quota_v1(group: Path) -> float | None:
    try:
        quota = int((group / "cpu.cfs_quota_us").read_text())
        return None if quota <= 0 else quota / int((group / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None


def _physical_cores(cpus: set[int], topology: Path) -> int:
    """Distinct cores among `cpus`; where the system names no siblings, every CPU counts as a core."""
    cores = set()
    for cpu in cpus:
        try:
            cores.add((topology / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip())
        except OSError:
            cores.add(str(cpu))
    return max(1, len(cores))


def _cpu_fields(path: Path) -> dict[str, str]:
    """The fields of the first processor in a cpuinfo file."""
    try:
        text = path.read_text()
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
