"""Opens the folder and index of a disk store after whatever happened to them. What is lost is computed again."""

from __future__ import annotations

import gc
import logging
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forebay.core.errors import ConfigError
from forebay.fabric.extents import EXTENTS
from forebay.fabric.index import NAME, Index

log = logging.getLogger(__name__)


def make_folder(folder: Path) -> None:
    """The cache directory, for this user only. Raises ConfigError when it can't be made or written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        (folder / EXTENTS).mkdir(exist_ok=True, mode=0o700)
        (folder / "lock").touch(0o600)
    except OSError as error:
        raise ConfigError(f"The cache directory {folder} can't be used: {error.strerror}.") from error


def open_index(folder: Path, log_bytes: int) -> Index:
    """The index for writing; an empty one, without any extents, where it is damaged."""
    try:
        return Index(folder, log_bytes=log_bytes)
    except sqlite3.DatabaseError as error:
        log.warning("the index of %s is damaged (%s); the cache begins empty", folder, error)
        for suffix in ("", "-wal", "-shm"):
            (folder / (NAME + suffix)).unlink(missing_ok=True)
        shutil.rmtree(folder / EXTENTS)
        (folder / EXTENTS).mkdir(mode=0o700)
        return Index(folder, log_bytes=log_bytes)


@contextmanager
def no_collection() -> Iterator[None]:
    """Many objects are made that stay: looking for garbage among them again and again would double the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
