"""What the lower tiers count. Counters only ever grow; rates and percentiles are made by who reads them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields, replace


@dataclass(slots=True)
class TierCounters:
    """Counts since the start. Pages unless the name says bytes, tokens or seconds (`_s`)."""

    misses: int = 0
    """Pages of prompts that were in no tier."""
    saved: int = 0
    """Saved from the device to the host pool: copied, or only referred to where both lie in one memory."""
    saved_bytes: int = 0
    saved_s: float = 0.0
    save_skipped_queue: int = 0
    """Not written through because the queue was at its bound."""
    save_skipped_room: int = 0
    """Not written through because every slot was in use."""
    loaded_host: int = 0
    """Brought from the host pool to the device, in the same two ways: the hits of this tier."""
    loaded_host_tokens: int = 0
    loaded_host_bytes: int = 0
    loaded_host_s: float = 0.0
    loaded_disk: int = 0
    """Read from disk to the device: the hits of that tier."""
    loaded_disk_tokens: int = 0
    loaded_disk_bytes: int = 0
    loaded_disk_s: float = 0.0
    loads_failed: int = 0
    """Loads (not pages) that gave fewer pages than they were asked for."""
    spilled: int = 0
    """Copied from the host pool to disk."""
    spilled_bytes: int = 0
    spilled_s: float = 0.0
    spills_failed: int = 0
    evicted_host_room: int = 0
    evicted_host_quota: int = 0
    evicted_disk_room: int = 0
    evicted_disk_quota: int = 0
    evicted_disk_expired: int = 0
    refused_host_quota: int = 0
    """Not kept in the host pool: all that their tenant may hold there is in use."""
    refused_disk_quota: int = 0
    compacted_bytes: int = 0
    """Moved within the disk store to give space back."""
    corrupt_host: int = 0
    """Dropped because their bytes did not match the checksum."""
    corrupt_disk: int = 0
    checked_host: int = 0
    """Checked at rest (`--verify-kv`), damaged ones included."""
    checked_disk: int = 0


@dataclass(frozen=True, slots=True)
class PoolGauges:
    """The pool as of now, in pages but for `page_bytes`."""

    page_bytes: int
    slots: int
    used: int
    pinned: int
    dirty: int
    """Waiting to be written to disk."""
    tenant_bytes: dict[str, int]
    """Bytes of each tenant's pages."""


class Metrics:
    """The counters of one set of tiers, changed by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters = TierCounters()

    def count(self, **amounts: float) -> None:
        """Add to counters by their field names. Raises AttributeError for a name that is none."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self._counters, name, getattr(self._counters, name) + amount)

    def snapshot(self) -> TierCounters:
        """All counters as of now."""
        with self._lock:
            return replace(self._counters)


def as_numbers(counters: TierCounters) -> dict[str, float]:
    """The counters by name."""
    return {field.name: getattr(counters, field.name) for field in fields(counters)}
