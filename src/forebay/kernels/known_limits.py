"""This machine's limits, measured once and kept in the cache folder. The measuring is in `limits.py`.

Other work on the machine only ever makes a measurement too small, so a better one replaces what is kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from pathlib import Path

import torch

from forebay.core.location import cache_folder
from forebay.kernels.cpu import cpu_info
from forebay.kernels.interface import Kernels
from forebay.kernels.limits import MachineLimits, measure_limits

log = logging.getLogger(__name__)

_BUDGET_S = 0.2
"""Each of the two is measured for about so long when nothing is kept: it is a part of a first start."""


def known_limits(kernels: Kernels) -> MachineLimits:
    """What is kept for this processor, these kernels and torch's number of threads; measured where nothing is."""
    kept = _read(_path(kernels))
    return remember(kernels, measure_limits(kernels, _BUDGET_S)) if kept is None else kept


def remember(kernels: Kernels, measured: MachineLimits) -> MachineLimits:
    """Keep the better of what is kept and what was measured, and return it. A folder that can't be written is no
    error: the limits are measured again next time.
    """
    path = _path(kernels)
    kept = _read(path) or measured
    best = MachineLimits(
        read_gbps=max(kept.read_gbps, measured.read_gbps), gemm_gflops=max(kept.gemm_gflops, measured.gemm_gflops)
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump({"read_gbps": best.read_gbps, "gemm_gflops": best.gemm_gflops}, file)
        Path(file.name).replace(path)
    except OSError as error:
        log.warning("the machine's limits can't be kept in %s: %s", path.parent, error.strerror)
    return best


def _path(kernels: Kernels) -> Path:
    cpu = cpu_info()
    parts = (cpu.model, *cpu.flags, kernels.name, str(torch.get_num_threads()))
    name = hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
    return cache_folder("limits") / f"{name}.json"


def _read(path: Path) -> MachineLimits | None:
    """None where there is no file, or none that can be read."""
    try:
        found = json.loads(path.read_text())
        limits = MachineLimits(read_gbps=float(found["read_gbps"]), gemm_gflops=float(found["gemm_gflops"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return limits if limits.read_gbps > 0 and limits.gemm_gflops > 0 else None
