"""The slots of a host pool: in shared memory, with the table that tells other processes what is in them, or in memory
that it has in common with the device. No policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from blake3 import blake3

from forebay.core.copying import CopyBytes
from forebay.core.errors import ConfigError
from forebay.fabric.checksum import memory_at
from forebay.fabric.common_memory import CommonMemory
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


class Slots(Protocol):
    """Slots of one size by number, each with room for a page."""

    @property
    def total(self) -> int:
        """How many there are."""

    @property
    def free(self) -> int:
        """Slots that nobody has taken."""

    def take(self) -> int | None:
        """A free slot, or None."""

    def give_back(self, slot: int) -> None:
        """The slot is free again."""

    def put(self, slot: int, address: int, copy: CopyBytes) -> None:
        """The slot has the page at this address of the process: a copy, where the slots have memory of their own."""

    def memory(self, slot: int) -> memoryview:
        """The bytes of a slot's page."""

    def address(self, slot: int) -> int:
        """Where those bytes lie in this process."""

    def publish(self, slot: int, ref: PageRef, checksum: bytes) -> None:
        """The slot holds this page, complete: other processes may read it, where they can."""

    def hide(self, slot: int) -> None:
        """The slot's page is gone."""

    def check(self, taken: list[int], device: Iterable[int] | None) -> list[str]:
        """Whether `taken` and the free slots are different ones; empty when all is well. `device` are the frames of
        the device's pages, where there is memory in common and nothing moves."""

    def close(self) -> None:
        """Give the memory back."""


class SlotNumbers:
    """Which slots are free."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = list(range(total - 1, -1, -1))

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

    def check(self, taken: list[int], device: Iterable[int] | None = None) -> list[str]:
        """As `Slots.check`."""
        del device
        found = [] if len(set(taken)) == len(taken) else ["two pages share a slot"]
        return found + (["a slot is free and in use"] if set(taken) & set(self._free) else [])


class OwnSlots(SlotNumbers):
    """Slots with memory of their own, which other processes may map (`path`)."""

    def __init__(self, wanted: HostMemory, page_bytes: int) -> None:
        """Raises ConfigError when the memory can't be had or does not hold a page."""
        super().__init__(_total(wanted, page_bytes))
        self.page_bytes = page_bytes
        self._start, self._slot_bytes = data_start(self.total), aligned(page_bytes)
        self._memory = create_memory(wanted)
        self.path = self._memory.path
        self._table = write_header(self._memory.buffer, self.total, page_bytes)

    def put(self, slot: int, address: int, copy: CopyBytes) -> None:
        """Copy a page into the slot."""
        copy(self.address(slot), address, self.page_bytes)

    def memory(self, slot: int) -> memoryview:
        """The bytes of a slot."""
        start = self._start + slot * self._slot_bytes
        return self._memory.buffer[start : start + self.page_bytes]

    def address(self, slot: int) -> int:
        """Where those bytes lie in this process."""
        return self._memory.address + self._start + slot * self._slot_bytes

    def publish(self, slot: int, ref: PageRef, checksum: bytes) -> None:
        """Show the page to other processes."""
        row = self._table[slot]
        row["id"], row["checksum"], row["tenant"] = ref.id, checksum, blake3(ref.tenant.encode()).digest()
        row["state"] = READY

    def hide(self, slot: int) -> None:
        """Show it no longer."""
        self._table[slot]["state"] = EMPTY

    def close(self) -> None:
        """Give the memory back."""
        del self._table
        self._memory.close()


class CommonSlots(SlotNumbers):
    """Slots that refer to frames of memory that the device's pages lie in too. Other processes see nothing of them."""

    def __init__(self, wanted: HostMemory, memory: CommonMemory) -> None:
        """As many as there would be in memory of their own. Raises ConfigError when that does not hold a page."""
        super().__init__(_total(wanted, memory.page_bytes))
        self._memory = memory
        self._frames: dict[int, int] = {}

    def give_back(self, slot: int) -> None:
        """The slot is free again, and refers to nothing."""
        frame = self._frames.pop(slot, None)
        if frame is not None:
            self._memory.drop([frame])
        super().give_back(slot)

    def put(self, slot: int, address: int, copy: CopyBytes) -> None:
        """Refer to the frame at this address."""
        del copy
        frame = self._memory.frame(address)
        self._memory.hold(frame)
        self._frames[slot] = frame

    def memory(self, slot: int) -> memoryview:
        """The bytes of a slot's page. Raises KeyError while it has none."""
        return memory_at(self.address(slot), self._memory.page_bytes)

    def address(self, slot: int) -> int:
        """Where those bytes lie in this process. Raises KeyError while it has none."""
        return self._memory.address(self._frames[slot])

    def publish(self, slot: int, ref: PageRef, checksum: bytes) -> None:
        """There is nobody to show it to."""

    def hide(self, slot: int) -> None:
        """Nobody saw it."""

    def check(self, taken: list[int], device: Iterable[int] | None = None) -> list[str]:
        """Beside what holds for all slots: that each frame has as many holders as refer to it."""
        found = super().check(taken)
        return found if device is None else found + self._memory.problems([*self._frames.values(), *device])

    def close(self) -> None:
        """Refer to nothing any more."""
        self._memory.drop(self._frames.values())
        self._frames.clear()


def _total(wanted: HostMemory, page_bytes: int) -> int:
    total = slots_in(wanted.size, page_bytes)
    if total < 1:
        raise ConfigError(f"A host pool of {wanted.size} bytes holds no page of {page_bytes} bytes.")
    return total
