"""Moves of pages between the device and the tiers below it: what is asked for, and what must be known to ask.

No bytes, and no choice of what moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from forebay.kv.tiers import Lookup, PageRef


@dataclass(frozen=True, slots=True)
class Save:
    """Copy one device page down. Until it is done its content does not change, and the device page is not given out."""

    ref: PageRef
    number: int
    """The device page."""


@dataclass(frozen=True, slots=True)
class Load:
    """Copy leading pages of a prefix up, in order; as many as arrive intact count, up to the first that does not."""

    ticket: int
    """Names this load when it has ended."""
    refs: Sequence[PageRef]
    numbers: Sequence[int]
    """The device page for each."""


@dataclass(slots=True)
class PagePlan:
    """The moves that belong to one step."""

    urgent: list[Save] = field(default_factory=list)
    """To be done before anything else of the step is: what they read may be overwritten by it."""
    writes: list[Save] = field(default_factory=list)
    """Write-through in the background; each ends with `Scheduler.written`."""
    loads: list[Load] = field(default_factory=list)
    """In the background, begun after the urgent saves; each ends with `Scheduler.landed`."""

    def __bool__(self) -> bool:
        return bool(self.urgent or self.writes or self.loads)


class Below(Protocol):
    """The tiers below the device, as policy sees them. No call waits for anything."""

    def lookup(self, pages: Sequence[bytes], tenant: str) -> Lookup:
        """Where the leading ones of these pages are."""

    def missing(self, pages: Sequence[bytes], tenant: str) -> list[int]:
        """The places in `pages` of those that no tier below has."""

    def used(self, pages: Sequence[bytes], retention: str) -> None:
        """A request of this retention class goes on from these pages: they are worth more."""

    def missed(self, pages: int) -> None:
        """So many full pages of a new prompt are in no tier, the device included."""

    def room(self) -> int:
        """How many pages could be saved now, evicting what may go."""

    def capacity(self) -> int:
        """How many pages could be kept there given time: `room`, and what can be copied on to disk to make more."""

    def room_of(self, tenant: str) -> int | None:
        """How many pages of this tenant its quota allows to be saved now, beside what is kept of it and given up what
        may go of it; None where it has no quota. `room` bounds them as well."""

    def capacity_of(self, tenant: str) -> int | None:
        """How many pages of this tenant could be kept there given time, by its quotas and the room of each tier; None
        where it has no quota."""

    def at_once(self, tenant: str) -> int | None:
        """How many pages of this tenant that are not on disk `keep` can ever take at one time; None where no quota
        bounds that."""

    def burden(self, pages: Sequence[bytes], tenant: str) -> int:
        """How much of `room` it takes to `keep` these pages."""

    def keep(self, pages: Sequence[bytes], new: Sequence[PageRef]) -> bool:
        """Pin all these pages, with room reserved for those among them that are in no tier yet (`new`): a save of one
        of these, now or in the background, uses it. False, with nothing changed, when they don't all find room."""

    def cascade(self) -> bool:
        """Begin to copy pinned pages on to disk, so that there is more room. False when there is none to come. Pages
        whose tenants may hold no more on disk stay where they are."""

    def pin(self, pages: Iterable[bytes]) -> None:
        """Keep these pages, also those that come later, until `unpin`. Pins count."""

    def unpin(self, pages: Iterable[bytes]) -> None:
        """Take back one pin of each."""
