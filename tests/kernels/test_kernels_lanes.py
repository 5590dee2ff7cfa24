"""Vectors of 4, 8 and 16 lanes give the same bits, so that what a model says does not depend on the processor."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.kernels.kernel_cases import random
from tests.kernels.test_kernels_invariance import attend
from tests.kernels.test_kernels_quantised import KINDS, quantised

from forebay.core.activations import Activations
from forebay.kernels import Pick
from forebay.kernels.build import built_library
from forebay.kernels.native import NativeKernels


@pytest.fixture(scope="module", params=["fp32", "int8"])
def activations(request: pytest.FixtureRequest) -> Activations:
    chosen: Activations = request.param
    return chosen


@pytest.fixture(scope="module")
def own(activations: Activations) -> NativeKernels:
    return _kernels(built_library()[0], activations)


@pytest.fixture(scope="module")
def other(library: Path, activations: Activations) -> NativeKernels:
    """The same, or with other lanes."""
    return _kernels(library, activations)


def _kernels(library: Path, activations: Activations) -> NativeKernels:
    """Ones that round inputs to bf16 even where products of it are no faster; not on ARM, whose instruction adds both
    products of a pair before the sum.
    """
    kernels = NativeKernels(library, threads=2, activations=activations)
    kernels.rounds_bf16 = activations == "int8" and platform.machine() != "aarch64"
    return kernels


@pytest.mark.parametrize("kind", [*KINDS, "bf16", "fp32"])
def test_linear(own: NativeKernels, other: NativeKernels, kind: str) -> None:
    plain = {"bf16": torch.bfloat16, "fp32": torch.float32}
    for rows, outputs, inputs in ((1, 70, 576), (7, 200, 96), (70, 33, 1536)):
        x, bias, residual = random(rows, inputs, seed=1), random(outputs, seed=2), random(rows, outputs, seed=3)
        made = []
        for kernels in (own, other):
            if kind in plain:
                weight = kernels.pack(random(outputs, inputs), plain[kind])
            else:
                weight = kernels.pack_quantised(quantised(kind, outputs, inputs), torch.bfloat16)
            made.append(kernels.linear(x, weight, bias, residual))
        assert torch.equal(*made)


@pytest.mark.parametrize("dim", [64, 72, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("window", [None, 100])
def test_attention(own: NativeKernels, other: NativeKernels, dim: int, dtype: torch.dtype, window: int | None) -> None:
    steps = [{0: 150, 1: 20}, {0: 7}, {1: 1, 0: 142}, {0: 1}]
    assert torch.equal(attend(own, steps, dtype, window, dim), attend(other, steps, dtype, window, dim))


@pytest.mark.parametrize("values", [1, 31, 576, 1154])
def test_row_operations(own: NativeKernels, other: NativeKernels, values: int) -> None:
    x, weight = random(20, values), random(values, seed=1)
    assert torch.equal(own.rms_norm(x, weight, 1e-5), other.rms_norm(x, weight, 1e-5))
    both = 10 * random(20, 2 * values, seed=2)
    assert torch.equal(own.silu_mul(both), other.silu_mul(both))


@pytest.mark.parametrize("kept", [{}, {"top_k": 40}, {"top_p": 0.9}, {"min_p": 0.02}])
def test_drawn_tokens(own: NativeKernels, other: NativeKernels, kept: dict[str, Any]) -> None:
    logits = 3 * random(4, 5003)
    picks = [Pick(row, 0.8, point=point / 64, **kept) for row in range(4) for point in range(64)]
    assert own.draw(logits, picks) == other.draw(logits, picks)
