"""How bytes are copied within this process: the kernels may have a faster way than the C library's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

CopyBytes = Callable[[int, int, int], object]
"""(address to copy to, address to copy from, bytes); other threads run meanwhile."""

plain_copy: CopyBytes = ctypes.memmove
"""The C library's."""
