"""Carries out the scheduler's page moves between the device and the tiers below it. It decides none of them.

Urgent saves are done in the call, since the step that follows may overwrite what they read; all else is left to the
tiers' threads, and what they have done is told to the scheduler between steps.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from forebay.core.messages import TierStats
from forebay.engine.device_pages import DevicePages
from forebay.fabric import KvTiers, Loaded, Saved
from forebay.fabric.metrics import as_numbers
from forebay.kv.moves import Load, PagePlan, Save
from forebay.kv.tiers import Lookup, PageRef
from forebay.scheduling import Scheduler

log = logging.getLogger(__name__)

_TIMES_KEPT = 4096
_NEW_KEPT = 255
"""Times kept between two statistics messages, but for one."""


@dataclass(slots=True)
class MoveTimes:
    """Seconds that moves took, the last few thousand of each."""

    urgent: deque[float]
    """All urgent saves of one plan."""
    loads: deque[float]
    """One load, from asking to its end."""


class PageMoves:
    """The tiers below one engine's device pages, as the scheduler asks for them (`kv.moves.Below`) and as they are."""

    def __init__(self, tiers: KvTiers, pages: DevicePages) -> None:
        """`pages` are told where loads leave them; where they have memory in common, `tiers` were opened with it."""
        self.times = MoveTimes(deque(maxlen=_TIMES_KEPT), deque(maxlen=_TIMES_KEPT))
        self.urgent_failed = 0
        self._new_urgent: list[float] = []
        self._new_loads: list[float] = []
        self._tiers = tiers
        self._pages = pages
        self._page_bytes = tiers.config.page_bytes
        self._saving = 0
        self._loading: dict[int, Load] = {}
        self._refused: list[Saved] = []
        self._waiting: deque[Load] = deque()
        """Loads that the tiers had no place for; at most one for each running sequence."""

    @property
    def fd(self) -> int:
        """Readable when a background move has ended."""
        return self._tiers.fileno()

    def lookup(self, pages: Sequence[bytes], tenant: str) -> Lookup:
        """Where the leading ones of these pages are."""
        return self._tiers.lookup(pages, tenant)

    def missing(self, pages: Sequence[bytes], tenant: str) -> list[int]:
        """The places in `pages` of those that no tier below has."""
        return self._tiers.missing(pages, tenant)

    def room(self) -> int:
        """How many pages could be saved now."""
        return self._tiers.room()

    def capacity(self) -> int:
        """How many pages could be kept below, given time."""
        return self._tiers.capacity()

    def room_of(self, tenant: str) -> int | None:
        """How many pages of this tenant its quota allows to be saved now; None where it has none."""
        return self._tiers.room_of(tenant)

    def capacity_of(self, tenant: str) -> int | None:
        """How many pages of this tenant could be kept below, given time; None where it has no quota."""
        return self._tiers.capacity_of(tenant)

    def at_once(self, tenant: str) -> int | None:
        """How many pages of this tenant can be kept at one time; None where no quota bounds that."""
        return self._tiers.at_once(tenant)

    def burden(self, pages: Sequence[bytes], tenant: str) -> int:
        """How much room it takes to keep these pages."""
        return self._tiers.burden(pages, tenant)

    def keep(self, pages: Sequence[bytes], new: Sequence[PageRef]) -> bool:
        """Pin these pages, with room for the new ones; all or none."""
        return self._tiers.keep(pages, new)

    def cascade(self) -> bool:
        """Have pinned pages copied on to disk; False when that makes no room."""
        return self._tiers.cascade()

    def pin(self, pages: Iterable[bytes]) -> None:
        """Keep these pages below until `unpin`."""
        self._tiers.pin(list(pages))

    def unpin(self, pages: Iterable[bytes]) -> None:
        """Take back one pin of each."""
        self._tiers.unpin(list(pages))

    def used(self, pages: Sequence[bytes], retention: str) -> None:
        """A request of this class used these pages."""
        self._tiers.used(pages, retention)

    def missed(self, pages: int) -> None:
        """So many pages of a new prompt are in no tier."""
        self._tiers.missed(pages)

    def begin(self, plan: PagePlan) -> None:
        """Copy what is urgent, then ask the tiers for the rest."""
        if plan.urgent:
            self._save_now(plan.urgent)
        for save in plan.writes:
            if self._tiers.save(save.ref, self._pages.address(save.number), save.number):
                self._saving += 1
            else:
                self._refused.append(Saved(save.ref.id, save.number, kept=False))
        self._waiting += plan.loads
        self._begin_loads()

    def end(self, scheduler: Scheduler) -> None:
        """Tell the scheduler which moves have ended. To be called between steps."""
        refused, self._refused = self._refused, []
        for save in refused:
            self._end_save(save, scheduler)
        for done in self._tiers.poll():
            if isinstance(done, Saved):
                self._saving -= 1
                self._end_save(done, scheduler)
            else:
                self._end_load(done, scheduler)
        self._begin_loads()

    def _begin_loads(self) -> None:
        """Ask for the loads that wait, as many as the tiers take; the others wait for one of those to end."""
        while self._waiting:
            load = self._waiting[0]
            ticket = self._tiers.load(load.refs, self._pages.targets(load.numbers))
            if ticket is None:
                return
            self._loading[ticket] = load
            self._waiting.popleft()

    def _end_load(self, done: Loaded, scheduler: Scheduler) -> None:
        load = self._loading.pop(done.ticket)
        self._pages.landed(load.numbers, done.addresses)
        self.times.loads.append(done.seconds)
        self._new_loads = [*self._new_loads[-_NEW_KEPT:], done.seconds]
        scheduler.landed(load.ticket, done.pages)

    def _end_save(self, done: Saved, scheduler: Scheduler) -> None:
        if not done.kept:
            self._tiers.fulfil(done.page, self._pages.address(done.tag))
        scheduler.written(done.page)

    def add_to(self, stats: TierStats) -> None:
        """Add to the scheduler's figures what the tiers hold and have done."""
        gauges = self._tiers.gauges()
        stats.page_bytes = self._page_bytes
        stats.host_pages, stats.host_pages_total = gauges.host.used, gauges.host.slots
        stats.host_pages_pinned = gauges.host.pinned
        stats.disk_pages, stats.disk_bytes = gauges.disk_pages, gauges.disk_bytes
        stats.disk_bytes_limit = gauges.disk_limit
        stats.tenants = dict(gauges.tenants)
        stats.urgent_saves_failed = self.urgent_failed
        stats.urgent_s, self._new_urgent = self._new_urgent, []
        stats.load_s, self._new_loads = self._new_loads, []
        stats.counters = as_numbers(self._tiers.counters())

    def check(self) -> list[str]:
        """Recount the tiers' book-keeping."""
        moving = self._saving or self._loading
        return self._tiers.check(None if moving else self._pages.frames())

    @property
    def copies(self) -> bool:
        """Whether pages are copied between device and host pool; else both refer to where they lie."""
        return self._tiers.copies

    def close(self, report: Callable[[float], None] = lambda _: None) -> None:
        """End the copies; `report` is told the share done of what is written to disk. Device memory may go only after
        this."""
        self._tiers.close(report)

    def _save_now(self, saves: list[Save]) -> None:
        """Each page for itself, so that a prefix is kept where not all of it finds room. The scheduler pins them."""
        began = time.perf_counter()
        for save in saves:
            if not self._tiers.save_now(save.ref, self._pages.address(save.number)):
                self._note_loss()
        self.times.urgent.append(time.perf_counter() - began)
        self._new_urgent = [*self._new_urgent[-_NEW_KEPT:], self.times.urgent[-1]]

    def _note_loss(self) -> None:
        if not self.urgent_failed:
            log.warning(
                "a preempted sequence finds no room below the device and will be computed again: all that host pool "
                "and disk can hold, or its tenant's quota allows, is kept for others (said once; "
                "forebay_recomputed_tokens_total counts)"
            )
        self.urgent_failed += 1
