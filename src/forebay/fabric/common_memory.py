"""Memory that the device's pages and the host pool have in common, where the device is this machine's processor.

A page that both have lies there once, in a frame that both refer to (`kv.frames`): saving it and bringing it back
change who refers to what, and copy nothing. It allocates nothing, and does not know which of the device's pages lies
where.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, MutableSequence, Sequence

from forebay.fabric.checksum import page_checksum
from forebay.fabric.errors import TierError
from forebay.fabric.lease import Lease
from forebay.kv.frames import Frames


class CommonMemory:
    """Frames of one size by address. Several threads refer to frames; only the step loop takes free ones.

    What lies in a frame that two refer to must not change: the device writes to frames of its own only.
    """

    def __init__(self, address: int, page_bytes: int, frames: int) -> None:
        """`frames` frames one behind the other from `address` on, which stay there until the tiers are closed."""
        self.page_bytes = page_bytes
        self.total = frames
        self._start = address
        self._frames = Frames(frames)
        self._lock = threading.Lock()

    def address(self, frame: int) -> int:
        """Where a frame begins."""
        return self._start + frame * self.page_bytes

    def frame(self, address: int) -> int:
        """The frame that begins there. Raises TierError when none does."""
        frame, rest = divmod(address - self._start, self.page_bytes)
        if rest or not 0 <= frame < self.total:
            raise TierError(f"no page of the common memory begins at {address:#x}")
        return frame

    def shared(self, frame: int) -> bool:
        """Whether more than one refer to a frame."""
        return self._frames.holders[frame] > 1

    def take(self, count: int) -> list[int]:
        """So many free frames, each for one who refers to it. Raises ValueError when there are not so many."""
        with self._lock:
            return [self._frames.take() for _ in range(count)]

    def hold(self, frame: int) -> None:
        """One more refers to a frame. Raises ValueError when nobody did."""
        with self._lock:
            self._frames.hold(frame)

    def drop(self, frames: Iterable[int]) -> None:
        """One less refers to each of these frames. Raises ValueError when nobody did."""
        with self._lock:
            for frame in frames:
                self._frames.drop(frame)

    def swap(self, frame: int, other: int) -> None:
        """Who referred to `frame` refers to `other` instead. Raises ValueError when nobody refers to one of them."""
        with self._lock:
            self._frames.hold(other)
            self._frames.drop(frame)

    def problems(self, referred: Iterable[int]) -> list[str]:
        """What is wrong, given the frame of everyone who refers to one; empty when all is well."""
        with self._lock:
            return self._frames.problems(referred)


def share_pages(leases: Sequence[Lease], addresses: MutableSequence[int], start: int, memory: CommonMemory) -> int:
    """As `copy_pages`, without a copy: who refers to the frame at `addresses[start + i]` refers to page i's instead,
    and its address takes that one's place. A page that is damaged leaves everything as it is.

    Each is checked all the same: only so is a page found that was damaged while the pool alone had it.
    """
    sources = [lease.source() for lease in leases]
    for done, (lease, (source, buffer, checksum)) in enumerate(zip(leases, sources, strict=True)):
        if page_checksum(lease.ref.id, buffer) != checksum:
            lease.found_damaged()
            return done
        memory.swap(memory.frame(addresses[start + done]), memory.frame(source))
        addresses[start + done] = source
    return len(leases)
