"""Figures about this machine that are measured once and kept: JSON files in the cache folder, one for each processor,
kernels and number of threads. What is measured is in the modules that call this.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path

from forebay.core.location import cache_folder
from forebay.kernels.cpu import cpu_info

log = logging.getLogger(__name__)


def read_kept(kind: str, kernels: str, threads: int) -> dict[str, object]:
    """What is kept of this kind for this machine; empty where nothing is, or nothing that can be read."""
    try:
        found = json.loads(_path(kind, kernels, threads).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def keep(kind: str, kernels: str, threads: int, figures: Mapping[str, object]) -> None:
    """Replace what is kept, whole or not at all. A folder that can't be written is no error but a warning: it is
    measured again next time.
    """
    path = _path(kind, kernels, threads)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(dict(figures), file)
        Path(file.name).replace(path)
    except OSError as error:
        log.warning("what was measured of this machine can't be kept in %s: %s", path.parent, error.strerror)


def _path(kind: str, kernels: str, threads: int) -> Path:
    cpu = cpu_info()
    parts = (cpu.model, *cpu.flags, kernels, str(threads))
    name = hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
    return cache_folder(kind) / f"{name}.json"
