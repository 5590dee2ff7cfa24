"""Where the disk tier lies unless the operator says otherwise."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache_dir() -> Path:
    """`kv` in $FOREBAY_CACHE, $XDG_CACHE_HOME/forebay or ~/.cache/forebay."""
    own = os.environ.get("FOREBAY_CACHE")
    if own:
        return Path(own) / "kv"
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "forebay" / "kv"
