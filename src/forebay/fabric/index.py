"""The index of the disk store: one SQLite table of pages, and a few named values. No payload and no policy.

A page is named here only after its bytes are in their extent. Without fsync that order holds against the end of the
process at any instant; after a loss of power a row may be there without its bytes, which the checksum finds.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.core.errors import ConfigError
from forebay.fabric.extents import Place
from forebay.kv.tiers import PageRef

FORMAT = 1
NAME = "index.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pages (
  id BLOB PRIMARY KEY, parent BLOB, tenant TEXT, retention TEXT, last_token INTEGER,
  extent INTEGER, position INTEGER, size INTEGER, checksum BLOB,
  created REAL, last_use REAL, uses INTEGER
) WITHOUT ROWID;
"""
_COLUMNS = "id, parent, tenant, retention, last_token, extent, position, size, checksum, created, last_use, uses"


@dataclass(slots=True, eq=False)
class Record:
    """One page on disk. Times are seconds since 1970."""

    ref: PageRef
    place: Place
    checksum: bytes
    created: float
    last_use: float
    uses: int = 0


class Index:
    """The table of one store, opened for writing by its one server, or for reading by anyone."""

    def __init__(self, folder: Path, *, read_only: bool = False, log_bytes: int = 1 << 20) -> None:
        """`log_bytes` bounds the write-ahead log, but for one transaction.

        Raises ConfigError when the store is of another format, sqlite3.Error when it is damaged.
        """
        self._path = folder / NAME
        mode = "ro" if read_only else "rw"
        if not read_only:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        uri = f"{self._path.resolve().as_uri()}?mode={mode}"
        self._db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10)
        try:
            if not read_only:
                self._prepare(log_bytes)
            self._check_format()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, log_bytes: int) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(f"PRAGMA wal_autocheckpoint={max(1, log_bytes // 4096)}")
        self._db.execute(f"PRAGMA journal_size_limit={log_bytes}")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.executescript(_SCHEMA)
        self._db.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?)", (json.dumps(FORMAT),))

    def _check_format(self) -> None:
        found = self.value("format")
        if found != FORMAT:
            wanted = f"this version reads {FORMAT}. Remove {self._path.parent} first."
            raise ConfigError(f"The cache directory has format {found}, {wanted}")

    @property
    def disk_bytes(self) -> int:
        """Bytes of disk that the index and its log hold."""
        total = 0
        for suffix in ("", "-wal", "-shm"):
            path = self._path.with_name(NAME + suffix)
            total += path.stat().st_size if path.exists() else 0
        return total

    def problems(self) -> list[str]:
        """What SQLite finds wrong in the index, a few things at most; empty when it is whole."""
        found = [str(row[0]) for row in self._db.execute("PRAGMA integrity_check(5)")]
        return [] if found == ["ok"] else found

    def records(self) -> Iterator[Record]:
        """All pages, in order of their places."""
        for row in self._db.execute(f"SELECT {_COLUMNS} FROM pages ORDER BY extent, position"):  # noqa: S608
            yield _record(row)

    def find(self, page: bytes) -> Record | None:
        """One page as stored now."""
        row = self._db.execute(f"SELECT {_COLUMNS} FROM pages WHERE id = ?", (page,)).fetchone()  # noqa: S608
        return None if row is None else _record(row)

    def add(self, records: Sequence[Record]) -> None:
        """Name pages whose bytes are written."""
        marks = ", ".join("?" * 12)
        self._many(f"INSERT OR REPLACE INTO pages ({_COLUMNS}) VALUES ({marks})", map(_row, records))  # noqa: S608

    def move(self, moved: Iterable[tuple[bytes, Place]]) -> None:
        """Pages lie elsewhere now."""
        rows = ((place.extent, place.offset, page) for page, place in moved)
        self._many("UPDATE pages SET extent = ?, position = ? WHERE id = ?", rows)

    def remove(self, pages: Iterable[bytes]) -> None:
        """Forget pages, before their space is used again."""
        self._many("DELETE FROM pages WHERE id = ?", ((page,) for page in pages))

    def touch(self, records: Iterable[Record]) -> None:
        """Write down the uses and classes of these pages."""
        rows = ((record.last_use, record.uses, record.ref.retention, record.ref.id) for record in records)
        self._many("UPDATE pages SET last_use = ?, uses = ?, retention = ? WHERE id = ?", rows)

    def unused_since(self, retention: str, moment: float) -> list[bytes]:
        """Pages of a class that were last used before `moment`."""
        query = "SELECT id FROM pages WHERE retention = ? AND last_use < ?"
        return [row[0] for row in self._db.execute(query, (retention, moment))]

    def retentions(self) -> list[str]:
        """The classes that there are pages of."""
        return [row[0] for row in self._db.execute("SELECT DISTINCT retention FROM pages")]

    def summary(self) -> list[dict[str, Any]]:
        """Pages, bytes, and ages by tenant and class."""
        cursor = self._db.execute(
            "SELECT tenant, retention, count(*) AS pages, sum(size) AS bytes, min(created) AS oldest, "
            "max(last_use) AS last_use, sum(uses) AS uses FROM pages GROUP BY tenant, retention ORDER BY 1, 2"
        )
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def value(self, name: str) -> Any:
        """A named value, or None."""
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def set_values(self, values: Mapping[str, Any]) -> None:
        """Store named values (JSON)."""
        self._many("INSERT OR REPLACE INTO meta VALUES (?, ?)", ((k, json.dumps(v)) for k, v in values.items()))

    def close(self) -> None:
        """Close the database; the last one to do so folds the log into it."""
        self._db.close()

    def _many(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self._db.execute("BEGIN")
        try:
            self._db.executemany(statement, rows)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _record(row: tuple[Any, ...]) -> Record:
    page, parent, tenant, retention, end, extent, position, size, checksum, created, last_use, uses = row
    ref = PageRef(page, parent, tenant, retention, end)
    return Record(ref, Place(extent, position, size), checksum, created, last_use, uses)


def _row(record: Record) -> tuple[Any, ...]:
    ref, place = record.ref, record.place
    return (
        *(ref.id, ref.parent, ref.tenant, ref.retention, ref.end),
        *(place.extent, place.offset, place.size, record.checksum),
        *(record.created, record.last_use, record.uses),
    )
