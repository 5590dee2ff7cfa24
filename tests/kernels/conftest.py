"""The backends under test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from forebay.kernels.build import BuildError, built_library
from forebay.kernels.native import NativeKernels
from forebay.kernels.torch_backend import TorchKernels

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that the tests find tests.kernels.kernel_cases


@pytest.fixture(scope="session", params=[None, 4, 16], ids=["own", "4-lanes", "16-lanes"])
def library(request: pytest.FixtureRequest) -> Path:
    """The kernels as this processor has them, and with the vectors that others have, in plain code."""
    lanes = request.param
    try:
        return built_library(*([] if lanes is None else [f"-DFOREBAY_LANES={lanes}"]))[0]
    except BuildError as error:
        pytest.skip(f"the native kernels can't be built here: {error}")


@pytest.fixture(scope="session")
def native(library: Path) -> NativeKernels:
    return NativeKernels(library, threads=2)


@pytest.fixture(scope="session")
def rounding_bf16(library: Path) -> NativeKernels:
    """The native backend that rounds inputs to bf16, even where that is no faster."""
    kernels = NativeKernels(library, threads=2, activations="bf16")
    kernels.rounds_bf16 = True
    return kernels


@pytest.fixture(scope="session")
def portable() -> TorchKernels:
    return TorchKernels()
