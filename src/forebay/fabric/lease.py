"""The only ways to touch a page's bytes below the device: `Lease` and `DiskLease` to read, `Reservation` to write one.

Each belongs to one page of one tenant, keeps it where it is, and knows its checksum and whether a copy is pending. All
are context managers; whatever is done with one after its end raises LeaseError. They decide nothing about eviction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from forebay.core.copying import CopyBytes, plain_copy
from forebay.fabric.checksum import memory_at, page_checksum
from forebay.fabric.errors import CorruptPageError, LeaseError
from forebay.fabric.extents import Place
from forebay.kv.tiers import PageRef


class Pending:
    """The wait for a copy into a tier: open until it is done or given up."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self.failed = False

    @property
    def done(self) -> bool:
        """Whether the copy ended, well or not."""
        return self._done.is_set()

    def finish(self, *, failed: bool) -> None:
        """The copy ended; everyone who waits goes on."""
        self.failed = failed
        self._done.set()

    def wait(self, timeout: float) -> bool:
        """Wait for the end; False when it did not come in time."""
        return self._done.wait(timeout)


class _Handle:
    """What all have in common: a page, and an end after which nothing works any more."""

    def __init__(self, ref: PageRef, end: Callable[[], None]) -> None:
        self._ref = ref
        self._end: Callable[[], None] | None = end

    @property
    def ref(self) -> PageRef:
        """The page."""
        return self._ref

    def release(self) -> None:
        """Let go of the page. Raises LeaseError the second time, BufferError while an array lies over its view."""
        self._require_open()
        self._close()
        end, self._end = self._end, None
        if end is not None:
            end()

    def _require_open(self) -> None:
        if self._end is None:
            raise LeaseError(f"page {self._ref.id.hex()[:16]} was used after its lease was released")

    def _close(self) -> None:
        """Take back what was handed out."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._end is not None:
            self.release()


class DiskLease(_Handle):
    """The right to read one page from disk, which stays where it is meanwhile. `DiskStore.read` does the reading."""

    def __init__(
        self, ref: PageRef, place: Place, checksum: bytes, end: Callable[[], None], drop: Callable[[str], None]
    ) -> None:
        super().__init__(ref, end)
        self._place = place
        self._checksum = checksum
        self._drop = drop

    @property
    def place(self) -> Place:
        """Where the bytes lie."""
        self._require_open()
        return self._place

    @property
    def checksum(self) -> bytes:
        """The checksum that the page was stored with."""
        self._require_open()
        return self._checksum

    def check(self, data: memoryview, arrived: int) -> bool:
        """Whether `data` is the page; if not (or if fewer bytes arrived), the page is dropped from disk."""
        self._require_open()
        if arrived < self._place.size:
            self._drop(f"only {arrived} of {self._place.size} bytes are there")
        elif page_checksum(self._ref.id, data) != self._checksum:
            self._drop("it does not match its checksum")
        else:
            return True
        return False


class Lease(_Handle):
    """The right to read one page, which stays in its tier meanwhile."""

    def __init__(  # noqa: PLR0917  (made by tiers only)
        self,
        ref: PageRef,
        address: Callable[[], int],
        memory: Callable[[], memoryview],
        checksum: Callable[[], bytes],
        pending: Pending | None,
        end: Callable[[], None],
        drop: Callable[[], None],
    ) -> None:
        """`address`, `memory` (where the page lies) and `checksum` are asked once no copy is pending; `drop` takes a
        damaged page out of its tier."""
        super().__init__(ref, end)
        self._address = address
        self._memory = memory
        self._bytes: memoryview | None = None
        self._view: memoryview | None = None
        self._checksum = checksum
        self._pending = pending
        self._drop = drop

    @property
    def tenant(self) -> str:
        """Whose page it is."""
        return self.ref.tenant

    @property
    def nbytes(self) -> int:
        """Size of the page. Raises LeaseError when it is not ready."""
        return len(self._ready_buffer())

    @property
    def ready(self) -> bool:
        """Whether the bytes are there; False while a copy into the tier is pending or after it failed."""
        return self._pending is None or (self._pending.done and not self._pending.failed)

    def wait(self, timeout: float) -> bool:
        """Wait for a pending copy; True once the bytes are there. Never called by the step loop."""
        if self._pending is None:
            return True
        self._pending.wait(timeout)
        return self.ready

    def source(self) -> tuple[int, memoryview, bytes]:
        """Where the bytes lie, the bytes, unchecked, and their checksum, for `copy_pages`. Raises LeaseError when the
        page is not ready."""
        return self._address(), self._ready_buffer(), self._checksum()

    def found_damaged(self) -> None:
        """The bytes do not match the checksum: drop the page from its tier."""
        self._require_open()
        self._drop()

    def verify(self) -> None:
        """Check the bytes where they lie.

        Raises CorruptPageError, having dropped the page from its tier, when they are wrong; LeaseError when the page is
        not ready.
        """
        if page_checksum(self.ref.id, self._ready_buffer()) != self._checksum():
            self._drop()
            raise CorruptPageError(f"page {self.ref.id.hex()[:16]} does not match its checksum")

    def view(self) -> memoryview:
        """The checked bytes, read only, valid until release. Raises as `verify` does."""
        self.verify()
        self._view = self._view or self._buffer.toreadonly()
        return self._view

    def checksum(self) -> bytes:
        """The checksum that the page was stored with."""
        self._ready_buffer()
        return self._checksum()

    @property
    def _buffer(self) -> memoryview:
        self._require_open()
        self._bytes = self._bytes or self._memory()
        return self._bytes

    def _ready_buffer(self) -> memoryview:
        self._require_open()
        if not self.ready:
            raise LeaseError(f"page {self.ref.id.hex()[:16]} was read before its copy was done")
        return self._buffer

    def _close(self) -> None:
        for view in filter(None, (self._view, self._bytes)):
            view.release()


class Reservation(_Handle):
    """The right to put one new page into a tier. Nobody can read it before `commit`; without one the room is given
    back."""

    def __init__(
        self,
        ref: PageRef,
        size: int,
        put: Callable[[int, CopyBytes], None],
        commit: Callable[[bytes], None],
        abandon: Callable[[], None],
    ) -> None:
        """`put` has the `size` bytes of a page from an address on, in the tier's own memory or where they are."""
        super().__init__(ref, abandon)
        self._size = size
        self._put = put
        self._commit = commit
        self._checksum: bytes | None = None

    def fill(self, address: int, copy: CopyBytes = plain_copy) -> None:
        """Take the page from `address` of this process: by `copy`, where the tier has memory of its own.

        Its checksum is made of what is there, which is in the cache then, while `copy` may write past the caches.
        """
        self._require_open()
        self._put(address, copy)
        self._checksum = page_checksum(self._ref.id, memory_at(address, self._size))

    def commit(self) -> bytes:
        """The bytes are complete: let others read them. Returns their checksum. Raises LeaseError before `fill`."""
        self._require_open()
        if self._checksum is None:
            raise LeaseError(f"page {self._ref.id.hex()[:16]} is to be read, but was never filled")
        self._end = None
        self._commit(self._checksum)
        return self._checksum


def copy_pages(leases: Sequence[Lease], addresses: Sequence[int], copy: CopyBytes = plain_copy) -> int:
    """Copy pages to addresses of this process, up to the first that is damaged, which is dropped from its tier; returns
    how many leading ones are right.

    Each is checked where it lies, right after it was copied and while it is in the cache: nobody may change it under a
    lease, and what was damaged before the copy or is while it runs is found. Checking the copy instead would read it
    from memory once more, since `copy` may write past the caches.

    What is done per page between two copies is as little as can be: it runs with cold caches, and other threads that
    copy wait for it. Raises LeaseError, with nothing copied, when a page is not ready.
    """
    sources = [lease.source() for lease in leases]
    ids = [lease.ref.id for lease in leases]
    check = page_checksum
    for done, (address, (source, buffer, checksum), page) in enumerate(zip(addresses, sources, ids, strict=True)):
        copy(address, source, len(buffer))
        if check(page, buffer) != checksum:
            leases[done].found_damaged()
            return done
    return len(leases)
