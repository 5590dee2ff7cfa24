"""What a tier below the host pool answers, so that the threads that move pages need not know which one it is.

`DiskStore` is one. A remote store would be another, given to `KvTiers` in its place. The contract, which
`tests/fabric/test_fabric_contract.py` holds every implementation to:

- **The step loop never waits.** `where`, `lacking`, `used`, `pin`, `unpin` and `lease` answer from memory: a remote
  store keeps an index here, and is told of changes in the background. An index may promise a page that is gone by the
  time it is read: that is a miss then.
- **Reading may take as long as it takes**, but must end: a remote store has a deadline after which the page counts as
  not right. A few threads read at a time, each some neighbouring pages, so a store that waits loses nothing by it.
- **A page is right or it is not there.** The bytes that a lease's buffer holds are compared with the checksum that the
  page was stored with (`DiskLease.check`), after the last copy; one that differs is dropped and told to `on_drop`.
- **Storing** is done by one thread, some pages at a time. What was accepted is readable until it is evicted, expired or
  dropped; a store that can't write raises TierError and has kept nothing of the call.
- **Tenants are apart**: a page of another tenant is a miss, but for public ones (`kv.tiers.readable`). The store must
  trust its own index for that, never what a caller says.
- **Pins** keep a page from eviction and expiry until they are taken back, also when it comes later than the pin; they
  end with the process that set them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """Times are seconds since 1970."""

    on_drop: Callable[[bytes], None]
    """Called with the id of each page that turned out to be damaged; set by the owner."""

    @property
    def pages(self) -> int:
        """Pages stored."""

    @property
    def disk_bytes(self) -> int:
        """Bytes that they take where they lie."""

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

    def room(self, page_bytes: int) -> int:
        """How many more pages of this size could be kept beside those that are pinned."""

    def room_of(self, tenant: str, page_bytes: int) -> int | None:
        """The same for one tenant, by its quota alone; None where it has none. 0 is why a page was refused."""

    def lease(self, page: bytes, tenant: str, now: float) -> DiskLease | None:
        """The right to read a page, or None."""

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

    def tenant_bytes(self) -> dict[str, int]:
        """Bytes of each tenant's pages."""

    def save_values(self, values: Mapping[str, object]) -> None:
        """Keep named values beside the pages."""

    def close(self) -> None:
        """End orderly. Leases must have ended."""
