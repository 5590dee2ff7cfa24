"""Measures what this machine can do at most: memory read and matrix products. Not a benchmark of a model.

Decode is bound by the first, prefill by the second; other numbers are given as a share of these.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional

from forebay.kernels.interface import Kernels
from forebay.kernels.native import NativeKernels
from forebay.kernels.quantised import quantise

_READ_BYTES = 256 << 20
"""Far more than the caches of one machine hold."""
_SHAPES = ((512, 576, 1536), (512, 2048, 5632))
"""Rows, inputs, outputs: the linear layers of a small and of a middling model."""


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """The best of several tries; other work on the machine makes them smaller."""

    read_gbps: float
    """10^9 bytes a second that all threads together read from memory."""
    gemm_gflops: float
    """10^9 operations a second of the fastest product that inputs may be rounded for: ours or torch's of fp32, of bf16
    where the processor has it, and ours of integers (4-bit weights).
    """


def measure_limits(kernels: Kernels, budget_s: float = 1.0) -> MachineLimits:
    """Measure both, each for about `budget_s` seconds, with torch's number of threads."""
    return MachineLimits(read_gbps=read_gbps(kernels, budget_s), gemm_gflops=gemm_gflops(kernels, budget_s))


def read_gbps(kernels: Kernels, budget_s: float = 1.0) -> float:
    """10^9 bytes a second read from memory by all threads."""
    buffer = torch.zeros(_READ_BYTES // 4)

    def read() -> None:
        if isinstance(kernels, NativeKernels):
            kernels.read(buffer)
        else:
            buffer.sum()

    return _READ_BYTES / 1e9 / best_seconds(read, budget_s)


def gemm_gflops(kernels: Kernels, budget_s: float = 1.0) -> float:
    """10^9 operations a second of the best matrix product over the shapes and implementations."""
    share = budget_s / len(_SHAPES)
    return max(_gflops(kernels, shape, share) for shape in _SHAPES)


def _gflops(kernels: Kernels, shape: tuple[int, int, int], budget_s: float) -> float:
    rows, inputs, outputs = shape
    x, matrix = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    products = [partial(functional.linear, x, matrix), partial(kernels.linear, x, kernels.pack(matrix, torch.bfloat16))]
    if kernels.rounds_bf16:
        products.append(partial(functional.linear, x.bfloat16(), matrix.bfloat16()))
    if kernels.activations == "int8":
        integers = kernels.pack_quantised(quantise(matrix, 4), torch.bfloat16)
        products.append(partial(kernels.linear, x, integers))
    fastest = min(best_seconds(product, budget_s / len(products)) for product in products)
    return 2 * rows * inputs * outputs / 1e9 / fastest


def best_seconds(work: Callable[[], object], budget_s: float) -> float:
    """The shortest of the runs of `work` within about `budget_s` seconds (two at least), after one that warms up."""
    work()
    end = time.perf_counter() + budget_s
    times: list[float] = []
    while len(times) < 2 or time.perf_counter() < end:
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)
