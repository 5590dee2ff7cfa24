"""The compiled library's functions and their C types. It neither builds the library nor checks what is passed."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_int64, c_void_p
from enum import IntEnum
from pathlib import Path

import torch  # noqa: F401  (its OpenMP library must be in the process before ours asks for it)


class Format(IntEnum):
    """How a packed matrix is stored; numbers as in `csrc/quantised.h`."""

    FP32 = 0
    BF16 = 1
    INT4_FP16 = 2
    INT4_FP32 = 3
    INT8_FP16 = 4


class Stored(IntEnum):
    """How a model file stores rows that `forebay_pack_stored` takes; ggml's numbers, as in `csrc/stored_blocks.h`."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q8_0 = 8
    Q4_K = 12
    BF16 = 30


ROUNDED_INPUTS = -1
"""In the place of a number of rows that are few: inputs are rounded, to 8 bits with quantised matrices, to bf16 with
those of bf16.
"""

_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "forebay_panel": (c_int64, []),
    "forebay_multiplies_bf16": (c_int, []),
    "forebay_linear": (None, [c_void_p] * 5 + [c_int64] * 3 + [c_int] * 3),
    "forebay_pack": (None, [c_void_p] * 2 + [c_int64] * 2 + [c_int]),
    "forebay_quantised_bytes": (c_int64, [c_int64] * 2 + [c_int]),
    "forebay_pack_quantised": (None, [c_void_p] * 4 + [c_int64] * 2 + [c_int]),
    "forebay_pack_stored": (c_int, [c_void_p, c_int, c_void_p, *[c_int64] * 3, c_int]),
    "forebay_embed": (c_int64, [c_void_p] * 3 + [c_int64] * 3 + [c_int]),
    "forebay_rms_norm": (None, [c_void_p] * 3 + [c_int64] * 2 + [c_float, c_int]),
    "forebay_silu_mul": (None, [c_void_p] * 2 + [c_int64] * 2 + [c_int]),
    "forebay_rope_and_store": (None, [c_void_p] * 8 + [c_int64] * 5 + [c_float] + [c_int] * 2),
    "forebay_attention": (
        None,
        [c_void_p] * 4 + [c_int64] + [c_void_p] * 3 + [c_int64] * 6 + [c_float] + [c_int] * 3,
    ),
    "forebay_layers": (None, [c_void_p] * 6 + [c_int]),
    "forebay_decode": (c_int64, [c_void_p] * 9 + [c_int]),
    "forebay_draw": (None, [c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int]),
    "forebay_copy_past_caches": (None, [c_void_p] * 2 + [c_int64]),
    "forebay_copy_pages": (None, [c_void_p] * 2 + [c_int64] * 2),
    "forebay_read": (c_float, [c_void_p, c_int64, c_int]),
}


def load_library(path: Path) -> ctypes.CDLL:
    """Load the library and declare its functions; calls release the interpreter lock. OSError if it can't be loaded."""
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name, None)
        if function is None:
            raise OSError(f"{path} lacks {name}")
        function.restype = result
        function.argtypes = arguments
    return library


def openmp_libraries() -> set[str]:
    """Paths of the OpenMP runtimes in this process; with more than one, thread pools would spin against each other."""
    names = ("libgomp", "libomp", "libiomp")
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if "/" in line}
    return {path for path in paths if Path(path).name.startswith(names)}
