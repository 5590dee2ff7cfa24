"""Which processors this process may use, and how much of their time: affinity, cores, cgroup quota.

It reads what the system says and decides nothing; `engine/threads.py` does. No torch, so the API's process can ask too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

AT_START = frozenset(os.sched_getaffinity(0))
"""The CPUs that this process may run on. Import this module before torch: where OpenMP is told to pin its threads, it
pins the importing one as well, and that thread then sees a single CPU.
"""
_TOPOLOGY = Path("/sys/devices/system/cpu")
_MEMBERSHIPS = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Cpus:
    """The processors as this process may use them."""

    cores: tuple[tuple[int, ...], ...]
    """Their numbers, those of one physical core together; at least one."""
    quota: float | None = None
    """CPUs' worth of time that cgroups allow; None when unlimited."""


def usable_cores(cpus: Cpus) -> int:
    """Threads worth starting: one for each physical core, or fewer where a quota gives less time."""
    most = len(cpus.cores)
    return most if cpus.quota is None else max(1, min(most, int(cpus.quota)))


def read_cpus() -> Cpus:
    """What this process may use; takes about a millisecond."""
    return Cpus(cores_of(AT_START, _TOPOLOGY), cpu_quota(_MEMBERSHIPS, _CGROUPS))


@contextmanager
def free_to_move() -> Iterator[None]:
    """Threads started within may run on all CPUs of this process: a thread inherits where its creator is pinned, and
    what only moves bytes must not stay on the core of a compute thread. Afterwards the calling thread is where it was.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, AT_START)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cores_of(cpus: Iterable[int], topology: Path) -> tuple[tuple[int, ...], ...]:
    """`cpus` by physical core, in ascending order; where the system names no siblings, each is a core of its own.

    `topology` is /sys/devices/system/cpu.
    """
    cores: dict[str, list[int]] = {}
    for cpu in sorted(cpus):
        try:
            siblings = (topology / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
        except OSError:
            siblings = f"cpu{cpu}"
        cores.setdefault(siblings, []).append(cpu)
    return tuple(tuple(core) for core in cores.values())


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
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_v1(group: Path) -> float | None:
    try:
        quota = int((group / "cpu.cfs_quota_us").read_text())
        return None if quota <= 0 else quota / int((group / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError, ZeroDivisionError):
        return None
