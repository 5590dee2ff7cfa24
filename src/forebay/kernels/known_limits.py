"""This machine's limits, measured once and kept in the cache folder. The measuring is in `limits.py`.

Other work on the machine only ever makes a measurement too small, so a better one replaces what is kept.
"""

from __future__ import annotations

from dataclasses import asdict

import msgspec
import torch

from forebay.kernels.interface import Kernels
from forebay.kernels.kept import keep, read_kept
from forebay.kernels.limits import MachineLimits, measure_limits

_KIND = "limits"
_BUDGET_S = 0.2
"""Each of the two is measured for about so long when nothing is kept: it is a part of a first start."""


def known_limits(kernels: Kernels) -> MachineLimits:
    """What is kept for this processor, these kernels and torch's number of threads; measured where nothing is."""
    kept = _read(kernels)
    return remember(kernels, measure_limits(kernels, _BUDGET_S)) if kept is None else kept


def remember(kernels: Kernels, measured: MachineLimits) -> MachineLimits:
    """Keep the better of what is kept and what was measured, and return it. A folder that can't be written is no
    error: the limits are measured again next time.
    """
    kept = _read(kernels) or measured
    best = MachineLimits(
        read_gbps=max(kept.read_gbps, measured.read_gbps), gemm_gflops=max(kept.gemm_gflops, measured.gemm_gflops)
    )
    keep(_KIND, kernels.name, torch.get_num_threads(), asdict(best))
    return best


def _read(kernels: Kernels) -> MachineLimits | None:
    """None where nothing is kept, or nothing that can be read."""
    found = read_kept(_KIND, kernels.name, torch.get_num_threads())
    try:
        limits = msgspec.convert(found, MachineLimits)
    except msgspec.ValidationError:
        return None
    return limits if limits.read_gbps > 0 and limits.gemm_gflops > 0 else None
