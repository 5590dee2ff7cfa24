"""How many compute threads, on which cores, and how they wait for each other: decided here, carried out by OpenMP.

OpenMP reads its settings from the environment when torch is first imported, so they have to be there before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from forebay.core.cpus import Cpus, read_cpus, usable_cores

THREAD_SETTINGS = {"GOMP_SPINCOUNT": "4000"}
"""Wait actively for some 20 µs at a barrier, then sleep.

OpenMP's default, milliseconds, makes a step several times slower as soon as another process wants a core, and the API's
process always does. Sleeping at once costs half of a quiet machine's speed. The figures are in docs/performance.md.
"""
_PLACING = ("OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY")
"""By any of these a user says where threads run."""


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """What is decided."""

    threads: int
    places: tuple[tuple[int, ...], ...]
    """For each thread the CPUs it stays on; empty where the system may move the threads."""
    reason: str
    """Why so many, in words."""

    @property
    def pinned(self) -> bool:
        """Whether every thread stays on a core of its own."""
        return bool(self.places)

    def __str__(self) -> str:
        number = f"{self.threads} thread{'s' * (self.threads != 1)}"
        return f"{number} ({self.reason}{', each on a core of its own' if self.pinned else ''})"


def plan_threads(cpus: Cpus, asked: int | None = None) -> ThreadPlan:
    """As many threads as there are physical cores, fewer where a quota gives less time, or what is `asked` for.

    They are pinned where they take all cores (or all hardware threads), for then moving one only puts it beside
    another. Fewer threads than cores are not: the system can move them away from cores that others use.
    """
    cores = cpus.cores
    if asked is not None:
        threads, reason = asked, "as asked"
    else:
        threads, reason = usable_cores(cpus), "one for each core"
        if threads < len(cores):
            reason = f"of {len(cores)} cores a quota gives the time of {cpus.quota:.3g}"
    return ThreadPlan(threads, _places(cores, threads), reason)


def _places(cores: tuple[tuple[int, ...], ...], threads: int) -> tuple[tuple[int, ...], ...]:
    hardware = tuple((cpu,) for core in cores for cpu in core)
    for places in (cores, hardware):
        if len(places) == threads > 1:
            return places
    return ()


def thread_settings(plan: ThreadPlan, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to `environment`; what the user has set there stays."""
    settings = {name: value for name, value in THREAD_SETTINGS.items() if name not in environment}
    if plan.pinned and not any(name in environment for name in _PLACING):
        settings["OMP_PROC_BIND"] = "close"
        settings["OMP_PLACES"] = ",".join(f"{{{','.join(map(str, place))}}}" for place in plan.places)
    return settings


def in_force(plan: ThreadPlan, environment: Mapping[str, str]) -> ThreadPlan:
    """The plan as a process with this environment carries it out: not pinned where its variables say otherwise."""
    ours = thread_settings(plan, {})
    return plan if all(environment.get(name) == ours.get(name) for name in _PLACING) else replace(plan, places=())


def set_thread_defaults(asked: int | None = None) -> None:
    """Apply the plan for `asked` threads to this process. Call it before torch is imported."""
    os.environ.update(thread_settings(plan_threads(read_cpus(), asked), os.environ))
