"""What `forebay doctor` finds: processor, memory, compiler, kernels, torch, models; and what is to be done.

It measures for about two seconds and builds the native kernels when they are not built yet. It loads no model.
"""

from __future__ import annotations

import logging
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from forebay import __version__
from forebay.cli.console import Report, binary_size
from forebay.cli.options import DEFAULT_MODEL
from forebay.core.errors import ForebayError
from forebay.kernels.cpu import CpuInfo, cpu_info
from forebay.models import describe, resolve

_WANTED_MEMORY = 2 << 30
"""Bytes that the default model with a useful KV cache takes."""
_PACKAGES = ("cyclopts", "fastapi", "httpx2", "huggingface-hub", "pyzmq", "safetensors", "tokenizers", "uvicorn")


def examine(report: Report) -> dict[str, Any]:
    """All findings as plain data. `report` is called with each stage."""
    cpu = cpu_info()
    report("reading the model's description", 0.1)
    model = _model()
    report("loading torch and building the kernels if need be", 0.3)
    torch = _torch(cpu)
    kernels = _kernels(cpu) if torch["version"] else {"native": False, "name": None, "problem": "torch is missing"}
    report("measuring memory and matrix products", 0.6)
    limits = _limits(cpu) if torch["version"] else None
    findings: dict[str, Any] = {
        "forebay": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": _cpu(cpu),
        "memory": _memory(),
        "torch": torch,
        "kernels": kernels,
        "limits": limits,
        "model": model,
        "packages": {name: _version(name) for name in _PACKAGES},
    }
    findings["can_serve"] = bool(torch["version"]) and None not in findings["packages"].values()
    return findings | {"advice": advice(findings)}


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


def _model() -> dict[str, Any]:
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


def _torch(cpu: CpuInfo) -> dict[str, Any]:
    found = _version("torch")
    if found is None:
        return {"version": None, "threads": 0}
    import torch

    torch.set_num_threads(cpu.usable_cores)
    return {"version": found, "threads": torch.get_num_threads()}


def _kernels(cpu: CpuInfo) -> dict[str, Any]:
    from forebay.kernels import load_kernels
    from forebay.kernels.build import BuildError, built_library

    try:
        library, seconds = built_library()
        return {
            "native": True,
            "name": load_kernels("native").name,
            "library": str(library),
            "built_now_s": round(seconds, 1),
        }
    except (BuildError, ForebayError, OSError) as error:
        return {"native": False, "name": "torch", "problem": str(error)}


def _limits(cpu: CpuInfo) -> dict[str, float]:
    from forebay.kernels import load_kernels
    from forebay.kernels.limits import measure_limits

    logging.getLogger("forebay.kernels").setLevel(logging.ERROR)  # what it would warn of is among the findings
    limits = measure_limits(load_kernels("auto"))
    return {"read_gbps": round(limits.read_gbps, 1), "gemm_gflops": round(limits.gemm_gflops, 1)}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def advice(findings: dict[str, Any]) -> list[str]:
    """What to do about what is missing, most important first; empty when all is well."""
    steps = [f"Install {name}: run scripts/setup, or pip install {name}." for name in missing_packages(findings)]
    if not findings["model"]["found"]:
        steps.append(f"The default model can't be used: {findings['model']['problem']}")
    kernels = findings["kernels"]
    if findings["torch"]["version"] and not kernels["native"]:
        steps.append(f"The native kernels can't be used, and torch's are several times slower: {kernels['problem']}")
    if findings["memory"]["available"] < _WANTED_MEMORY:
        free = binary_size(findings["memory"]["available"])
        steps.append(f"Only {free} of memory are free; close programs, or serve with a small --kv-memory.")
    if findings["cpu"]["architecture"] == "x86_64" and "avx2" not in findings["cpu"]["instruction_sets"]:
        steps.append("This processor has no AVX2, so everything will be slow.")
    return steps


def missing_packages(findings: dict[str, Any]) -> list[str]:
    """Packages without which nothing can be served."""
    missing = [name for name, found in findings["packages"].items() if found is None]
    return missing if findings["torch"]["version"] else ["torch", *missing]


def for_people(findings: dict[str, Any]) -> str:
    """The findings as lines of text."""
    cpu, memory, model, kernels, limits = (findings[n] for n in ("cpu", "memory", "model", "kernels", "limits"))
    built = f", built just now in {kernels['built_now_s']} s" if kernels.get("built_now_s") else ""
    rows = {
        "forebay": f"{findings['forebay']}, Python {findings['python']}, {findings['system']}",
        "processor": f"{cpu['model']} ({cpu['architecture']})",
        "cores": f"{cpu['usable_cores']} usable of {cpu['physical_cores']}; {cpu['hardware_threads']} hardware threads",
        "instructions": " ".join(cpu["instruction_sets"]) or "none that help",
        "memory": f"{binary_size(memory['available'])} free of {binary_size(memory['total'])}",
        "memory read": f"{limits['read_gbps']:g} GB/s" if limits else "not measured",
        "matrices": f"{limits['gemm_gflops']:g} GFLOP/s" if limits else "not measured",
        "compiler": cpu["compiler"] or "none",
        "torch": f"{findings['torch']['version'] or 'not installed'}, {findings['torch']['threads']} threads",
        "kernels": f"{kernels['name']} ({kernels['library']}{built})" if kernels["native"] else "torch (slow)",
        "model": f"{model['name']}: {model['path']}" if model["found"] else f"{model['name']}: not found",
    }
    lines = [f"{name + ':':<14}{value}" for name, value in rows.items()]
    todo = [f"- {step}" for step in findings["advice"]] or ["Nothing is missing. Start with: forebay serve"]
    return "\n".join([*lines, "", *(["To do:"] if findings["advice"] else []), *todo])
