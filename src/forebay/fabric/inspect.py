"""Looks into a cache directory without its server: what is in it, and whether it is whole. It changes nothing."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.core.errors import ConfigError
from forebay.fabric.checksum import page_checksum
from forebay.fabric.extents import EXTENTS, read_record
from forebay.fabric.index import NAME, Index, Record


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check of all pages and of the index found."""

    pages: int
    bytes: int
    bad: list[str]
    """Ids (hex) of the pages that do not match their checksums."""
    index: list[str]
    """What is wrong with the index, in SQLite's words."""

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.bad and not self.index


@contextmanager
def reading(folder: Path) -> Iterator[Index]:
    """The index of a cache directory, whether a server writes to it or not.

    Raises ConfigError when there is none, or it can't be read.
    """
    if not (folder / NAME).exists():
        raise ConfigError(f"There is no KV cache in {folder}.")
    try:
        index = Index(folder, read_only=True)
        try:
            yield index
        finally:
            index.close()
    except sqlite3.Error as error:
        raise ConfigError(f"The index of the KV cache in {folder} can't be read: {error}.") from error


def disk_usage(folder: Path) -> int:
    """Bytes of disk that the directory's files hold; files that go meanwhile don't count."""
    total = 0
    for path in folder.glob("**/*"):
        try:
            total += path.stat().st_blocks * 512 if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def in_use(folder: Path) -> bool:
    """Whether a server has the directory open now."""
    try:
        fd = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def verify(folder: Path, index: Index, report: Callable[[str, float], None]) -> Verdict:
    """Read every page and compare it with its checksum, and look through the index. A page that the server drops or
    moves meanwhile is not bad."""
    records = list(index.records())
    bad, size = [], 0
    for done, record in enumerate(records):
        report("checking pages", done / len(records))
        size += record.place.size
        if not _matches(folder, record) and _still_there(folder, index, record):
            bad.append(record.ref.id.hex())
    return Verdict(len(records), size, bad, index.problems())


def totals(groups: list[dict[str, Any]]) -> dict[str, int]:
    """Pages and bytes over all tenants and classes."""
    return {name: sum(group[name] for group in groups) for name in ("pages", "bytes")}


def _matches(folder: Path, record: Record) -> bool:
    try:
        data = read_record(folder / EXTENTS, record.place)
    except OSError:
        return False
    return len(data) == record.place.size and page_checksum(record.ref.id, data) == record.checksum


def _still_there(folder: Path, index: Index, record: Record) -> bool:
    """Whether the page is bad where the index says that it is now."""
    now = index.find(record.ref.id)
    if now is None:
        return False
    return now.place == record.place or not _matches(folder, now)
