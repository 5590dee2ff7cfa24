"""What the tiers below the device are made of, and what they hold as of now. No behaviour: see `tiers.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from forebay.fabric.memory import HostMemory
from forebay.fabric.metrics import PoolGauges
from forebay.kv.quota import Quotas


@dataclass(frozen=True, slots=True)
class TierConfig:
    """What the tiers are made of."""

    page_bytes: int
    """Bytes of a device page; each is one memory range."""
    host: HostMemory
    cache_dir: Path | None = None
    """Where the disk tier lies; None for none."""
    cache_bytes: int = 0
    """Most bytes of disk that it may hold, index included."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """Retention classes by name, in seconds, beside or instead of the default ones."""
    host_quotas: Quotas = field(default_factory=Quotas)
    disk_quotas: Quotas = field(default_factory=Quotas)
    host_half_life_s: float = 60.0
    """How long unused a page in the host pool has to lie until it is worth half (see `kv.value`)."""
    disk_half_life_s: float = 3600.0
    """The same on disk."""
    copy_share: float = 0.1
    """How much of one core's copying speed write-through may take (0 to 1)."""
    verify_at_rest: bool = False
    """Re-check stored pages in the gaps."""


@dataclass(frozen=True, slots=True)
class TierGauges:
    """What the tiers hold now."""

    host: PoolGauges
    disk_pages: int
    disk_bytes: int
    disk_limit: int
    tenants: Mapping[str, tuple[int, int]]
    """Bytes of each tenant's pages in the host pool and on disk."""
