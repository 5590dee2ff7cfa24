"""Chooses the backend: the native one where it can be built, else torch with a warning that says what it costs."""

from __future__ import annotations

from forebay.core.errors import ConfigError
from forebay.kernels.interface import Kernels
from forebay.kernels.torch_backend import TorchKernels


def load_kernels(name: str = "auto") -> Kernels:
    """The backend called `name`: "native", "torch", or "auto" for native where possible."""
    if name not in ("auto", "native", "torch"):
        raise ConfigError(f"there are no kernels called {name!r}; choose auto, native or torch")
    if name == "native":
        raise ConfigError("the native kernels are not there yet")
    return TorchKernels()
