"""Gives each kernel backend that is there, and keeps torch on one thread."""

from __future__ import annotations

import pytest
import torch

from forebay.core.errors import ConfigError
from forebay.kernels import Kernels, load_kernels


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    # Tiny matrices gain nothing from a second thread, and lose much when another process has the core.
    torch.set_num_threads(1)


@pytest.fixture(scope="session", params=["torch", "native"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """Each backend in turn; native is skipped, with the reason, where it can't be built."""
    return _loaded(request.param)


@pytest.fixture(scope="session")
def native() -> Kernels:
    """The compiled backend; skipped, with the reason, where it can't be built."""
    return _loaded("native")


def _loaded(name: str) -> Kernels:
    try:
        return load_kernels(name)
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def torch_kernels() -> Kernels:
    """The portable backend, for tests in which the backend does not matter."""
    return load_kernels("torch")
