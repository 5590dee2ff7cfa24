"""Chooses the backend: the native one where it can be built, else torch with a warning that says what it costs."""

from __future__ import annotations

import logging

from forebay.core.activations import Activations
from forebay.core.errors import ConfigError
from forebay.kernels.build import BuildError, built_library
from forebay.kernels.cpu import cpu_flags
from forebay.kernels.interface import Kernels
from forebay.kernels.native import NativeKernels
from forebay.kernels.torch_backend import TorchKernels

_log = logging.getLogger(__name__)
_VECTOR_SETS = (("avx512f", "avx512"), ("avx2", "avx2"), ("asimd", "neon"))
"""Instruction sets in the order in which csrc/simd.h chooses, with their names in a backend's name."""


def load_kernels(name: str = "auto", activations: Activations = "fp32") -> Kernels:
    """The backend called `name`: "native", "torch", or "auto" for native where possible. `activations` says how far it
    rounds what it multiplies with weights.

    The first call on a machine compiles for a few seconds; later ones load what is in the cache. Raises ConfigError for
    another name, and for "native" where it can't be built.
    """
    if name == "torch":
        return TorchKernels(activations)
    if name not in ("auto", "native"):
        raise ConfigError(f"there are no kernels called {name!r}; choose auto, native or torch")
    try:
        return _native(activations)
    except (BuildError, OSError) as error:
        if name == "native":
            raise ConfigError(f"the native kernels can't be used: {error}") from error
        _log.warning("native kernels can't be used (%s); torch's are several times slower", error)
        return TorchKernels(activations)


def _native(activations: Activations) -> NativeKernels:
    library, seconds = built_library()
    if seconds:
        _log.info("compiled the native kernels in %.1f s, kept as %s", seconds, library)
    name = f"native-{_instruction_set()}"
    return NativeKernels(library, name if activations == "fp32" else f"{name}-{activations}", activations=activations)


def _instruction_set() -> str:
    flags = cpu_flags()
    return next((short for flag, short in _VECTOR_SETS if flag in flags), "generic")
