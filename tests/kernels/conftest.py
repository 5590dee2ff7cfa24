"""The backends under test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from forebay.kernels.build import BuildError, built_library
from forebay.kernels.native import NativeKernels
from forebay.kernels.torch_backend import TorchKernels

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that the tests find tests.kernels.kernel_cases


@pytest.fixture(scope="session")
def native() -> NativeKernels:
    try:
        library, _ = built_library()
    except BuildError as error:
        pytest.skip(f"the native kernels can't be built here: {error}")
    return NativeKernels(library, threads=2)


@pytest.fixture(scope="session")
def portable() -> TorchKernels:
    return TorchKernels()
