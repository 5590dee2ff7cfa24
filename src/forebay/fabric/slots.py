"""The slots of a host pool in shared memory, and the table that tells other processes what is in them. No policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from blake3 import blake3

from forebay.core.errors import ConfigError
from forebay.fabric.lease import Pending
from forebay.fabric.memory import HostMemory, create_memory
from forebay.fabric.pool_layout import EMPTY, READY, aligned, data_start, slots_in, write_header
from forebay.kv.tiers import PageRef


@dataclass(slots=True, eq=False)
class SlotPage:
    """What the pool knows of a page in one of its slots."""

    ref: PageRef
    slot: int
    last_use: float
    checksum: bytes = b""
    uses: int = 0
    leases: int = 0
    pending: Pending = field(default_factory=Pending)
    clean: bool = False
    """The same page is on disk: dropping it from here loses nothing."""
    gone: bool = False
    """No longer in the pool; its slot is free once the last lease ends."""


class Slots:
    """Slots of one size by number. `publish` shows a page to other processes, `hide` ends that."""

    def __init__(self, wanted: HostMemory, page_bytes: int) -> None:
        """Raises ConfigError when the memory can't be had or does not hold a page."""
        self.total = slots_in(wanted.size, page_bytes)
        if self.total < 1:
            raise ConfigError(f"A host pool of {wanted.size} bytes holds no page of {page_bytes} bytes.")
        self.page_bytes = page_bytes
        self._start, self._slot_bytes = data_start(self.total), aligned(page_bytes)
        self._memory = create_memory(wanted)
        self.path = self._memory.path
        self._table = write_header(self._memory.buffer, self.total, page_bytes)
        self._free = list(range(self.total - 1, -1, -1))

    @property
    def free(self) -> int:
        """Slots that nobody has taken."""
        return len(self._free)

    def take(self) -> int | None:
        """A free slot, or None."""
        return self._free.pop() if self._free else None

    def give_back(self, slot: int) -> None:
        """The slot is free again."""
        self._free.append(slot)

    def memory(self, slot: int) -> memoryview:
        """The bytes of a slot."""
        start = self._start + slot * self._slot_bytes
        return self._memory.buffer[start : start + self.page_bytes]

    def address(self, slot: int) -> int:
        """Where those bytes lie in this process."""
        return self._memory.address + self._start + slot * self._slot_bytes

    def publish(self, slot: int, ref: PageRef, checksum: bytes) -> None:
        """The slot holds this page, complete."""
        row = self._table[slot]
        row["id"], row["checksum"], row["tenant"] = ref.id, checksum, blake3(ref.tenant.encode()).digest()
        row["state"] = READY

    def hide(self, slot: int) -> None:
        """The slot's page is gone."""
        self._table[slot]["state"] = EMPTY

    def check(self, taken: list[int]) -> list[str]:
        """Whether `taken` and the free slots are different ones; empty when all is well."""
        found = [] if len(set(taken)) == len(taken) else ["two pages share a slot"]
        return found + (["a slot is free and in use"] if set(taken) & set(self._free) else [])

    def close(self) -> None:
        """Give the memory back."""
        del self._table
        self._memory.close()
