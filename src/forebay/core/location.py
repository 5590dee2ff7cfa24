"""Where Forebay keeps what it can make again: compiled kernels, cached pages, measurements."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(part: str) -> Path:
    """The folder `part` in $FOREBAY_CACHE, $XDG_CACHE_HOME/forebay or ~/.cache/forebay. It need not exist."""
    own = os.environ.get("FOREBAY_CACHE")
    if own:
        return Path(own) / part
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "forebay" / part
