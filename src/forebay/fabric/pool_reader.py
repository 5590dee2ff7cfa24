"""A host pool seen from another process of the same user: read only, without locks, never wrong bytes."""

from __future__ import annotations

from pathlib import Path

from blake3 import blake3

from forebay.fabric.checksum import page_checksum
from forebay.fabric.memory import open_memory
from forebay.fabric.pool_layout import READY, read_header
from forebay.kv.identity import PUBLIC


class PoolReader:
    """Finds pages in a pool that another process owns and may change at any moment."""

    def __init__(self, path: Path) -> None:
        """Map the pool at `path` (`HostPool.path` of its owner). Raises OSError or ConfigError."""
        self._buffer = open_memory(path)
        self._table, self.page_bytes, self._slot_bytes, self._start = read_header(self._buffer)

    def find(self, page: bytes, tenant: str) -> int | None:
        """The slot that claims to hold this tenant's page now. O(slots); `read` checks the claim."""
        ready = (self._table["state"] == READY).nonzero()[0]
        owners = [blake3(owner.encode()).digest() for owner in (tenant, PUBLIC)]
        for slot in ready:
            row = self._table[slot]
            if bytes(row["id"]) == page and bytes(row["tenant"]) in owners:
                return int(slot)
        return None

    def read(self, page: bytes, tenant: str) -> bytes | None:
        """A copy of the page's bytes, or None when it isn't there or went while it was copied."""
        slot = self.find(page, tenant)
        if slot is None:
            return None
        checksum = bytes(self._table[slot]["checksum"])
        start = self._start + slot * self._slot_bytes
        copied = bytes(self._buffer[start : start + self.page_bytes])
        return copied if page_checksum(page, copied) == checksum else None
