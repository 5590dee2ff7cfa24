"""What this machine's processor offers: usable cores, instruction sets, compiler. No torch, and nothing is measured."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from forebay.core.cpus import read_cpus, usable_cores

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
    cpus = read_cpus()
    return CpuInfo(
        model=fields.get("model name") or platform.processor() or platform.machine(),
        architecture=platform.machine(),
        physical_cores=len(cpus.cores),
        usable_cores=usable_cores(cpus),
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


def _cpu_fields(path: Path) -> dict[str, str]:
    """The fields of the first processor in a cpuinfo file."""
    try:
        text = path.read_text()
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
