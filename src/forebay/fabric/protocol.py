"""What a tier below the host pool answers, so that the threads that move pages need not know which one it is.

`DiskStore` is one. A remote store would be another: its leases name places of its own, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from forebay.fabric.lease import DiskLease
from forebay.kv.tiers import PageRef, Where


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page on its way down: `data` carries the bytes that `checksum` was made of."""

    ref: PageRef
    checksum: bytes
    data: memoryview


class StorageTier(Protocol):
    """Times are seconds since 1970. `where`, `used`, `pin` and `unpin` never wait for input or output."""

    def where(self, page: bytes, tenant: str, now: float) -> Where:
        """DISK or MISS."""

    def used(self, pages: Iterable[bytes], retention: str, now: float) -> None:
        """A request of this retention class uses these pages."""

    def lacking(self, pages: Iterable[bytes]) -> list[bytes]:
        """Those of these pages that are not here, whoever's they are."""

    def pin(self, pages: Sequence[bytes]) -> None:
        """Keep these pages, and those of them that come later, until `unpin`."""

    def unpin(self, pages: Iterable[bytes]) -> None:
        """Take back one pin of each."""

    def lease(self, page: bytes, tenant: str, now: float) -> DiskLease | None:
        """The right to read a page, or None."""

    def prefetch(self, leases: Sequence[DiskLease]) -> None:
        """These will be read next."""

    def read(self, leases: Sequence[DiskLease], buffers: Sequence[memoryview]) -> list[bool]:
        """Fill each buffer with its page; returns which ones are right."""

    def store(self, pages: Sequence[StoredPage], now: float) -> list[bool]:
        """Keep pages; returns which ones are kept. Raises TierError when none could be written."""

    def sweep(self, now: float) -> None:
        """Housekeeping. Raises TierError."""

    def clear(self) -> int:
        """Drop every page; returns how many. Raises TierError."""

    def names(self) -> list[tuple[bytes, str]]:
        """Id and tenant of every page."""

    def save_values(self, values: Mapping[str, object]) -> None:
        """Keep named values beside the pages."""

    def close(self) -> None:
        """End orderly. Leases must have ended."""
