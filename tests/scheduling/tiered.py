"""A scheduler with lower tiers that are a model: a host pool and a disk, copies that take steps, faults.

Pages hold the driver's marks, so a page that is lost, mixed up or read too early shows as a wrong mark.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.scheduling.driver import Driver

from forebay.kv import PAGE_TOKENS
from forebay.kv.moves import Load, Save
from forebay.kv.tiers import Lookup, PageRef, Where, readable
from forebay.scheduling import StepPlan

Marks = list[int | None]


class LowerTiers:
    """Least recently used first from host to disk, and from disk to nowhere; a pinned page is never dropped."""

    def __init__(
        self,
        host: int,
        disk: int = 0,
        quotas: Mapping[str, int] | None = None,
        once: Mapping[str, int] | None = None,
    ) -> None:
        """`quotas` are pages that a tenant may have in both together, `once` those that may be kept of it at a time;
        tenants not named have neither."""
        self.sizes = host, disk
        self.once = dict(once or {})
        self.quotas = dict(quotas or {}) | {tenant: 10**6 for tenant in self.once if tenant not in (quotas or {})}
        self.host: OrderedDict[bytes, tuple[PageRef, Marks]] = OrderedDict()
        self.disk: OrderedDict[bytes, tuple[PageRef, Marks]] = OrderedDict()
        self.pins: Counter[bytes] = Counter()
        self.promised: dict[bytes, PageRef] = {}
        self.refused: list[list[str]] = []
        """Whose pages each `keep` was about that found no room."""
        self.saves = 0
        self.misses = 0
        self.refuse = False
        self.spilling = False
        """Whether it says that pinned pages are on their way to make room."""

    def lookup(self, pages: Sequence[bytes], tenant: str) -> Lookup:
        places = []
        for page in pages:
            where = Where.HOST if page in self.host else Where.DISK if page in self.disk else Where.MISS
            found = self.host.get(page) or self.disk.get(page)
            if found is None or not readable(found[0].tenant, tenant):
                break
            places.append(where)
        return Lookup(places)

    def missing(self, pages: Sequence[bytes], tenant: str) -> list[int]:
        return [i for i, page in enumerate(pages) if not self.lookup([page], tenant).pages]

    def used(self, pages: Sequence[bytes], retention: str) -> None:
        for page in pages:
            if page in self.host:
                self.host.move_to_end(page)

    def missed(self, pages: int) -> None:
        assert pages >= 0
        self.misses += pages

    def room(self) -> int:
        if self.refuse:
            return 0
        kept = sum(page in self.pins for page in (*self.host, *self.disk))
        return sum(self.sizes) - kept - len(self.promised)

    capacity = room

    def capacity_of(self, tenant: str) -> int | None:
        limit = self.quotas.get(tenant)
        if limit is None:
            return None
        kept = [ref.tenant for page, (ref, _) in self._entries() if page in self.pins]
        return limit - kept.count(tenant) - [ref.tenant for ref in self.promised.values()].count(tenant)

    def room_of(self, tenant: str) -> int | None:
        left = self.capacity_of(tenant)
        return None if left is None else min(left, self.once.get(tenant, left))

    def at_once(self, tenant: str) -> int | None:
        return self.once.get(tenant)

    def burden(self, pages: Sequence[bytes], tenant: str) -> int:
        return sum(page not in self.pins for page in pages)

    def keep(self, pages: Sequence[bytes], new: Sequence[PageRef]) -> bool:
        self.pin(pages)
        lacking = {ref.id: ref for ref in new if not self.load(ref) and ref.id not in self.promised}
        charged = Counter(ref.tenant for ref in lacking.values())
        short = [tenant for tenant, count in charged.items() if count > (self.room_of(tenant) or 0)]
        if lacking and (len(lacking) > self.room() or any(tenant in self.quotas for tenant in short)):
            self.refused.append([ref.tenant for ref in lacking.values()])
            self.unpin(pages)
            return False
        self.promised |= lacking
        return True

    def cascade(self) -> bool:
        return self.spilling

    def pin(self, pages: Iterable[bytes]) -> None:
        self.pins.update(pages)

    def unpin(self, pages: Iterable[bytes]) -> None:
        for page in pages:
            self.pins[page] -= 1
            assert self.pins[page] >= 0
            if not self.pins[page]:
                del self.pins[page]

    def save(self, ref: PageRef, marks: Marks) -> bool:
        promised = self.promised.pop(ref.id, None) is not None
        if not promised and (self.refuse or ref.id in self.host or ref.id in self.disk):
            return not self.refuse
        if not self._within_quota(ref.tenant) or not self._make_room():
            assert not promised, "a page that was promised room finds none"
            return False
        self.host[ref.id] = ref, marks
        self.saves += 1
        return True

    def load(self, ref: PageRef) -> Marks | None:
        found = self.host.get(ref.id) or self.disk.get(ref.id)
        return None if found is None else found[1]

    def lose(self, page: bytes) -> None:
        self.host.pop(page, None)
        self.disk.pop(page, None)

    def _entries(self) -> list[tuple[bytes, tuple[PageRef, Marks]]]:
        return [*self.disk.items(), *self.host.items()]

    def _within_quota(self, tenant: str) -> bool:
        """Whether the tenant may have one page more by its quota, for which it gives up its own ones."""
        limit = self.quotas.get(tenant)
        while limit is not None:
            promised = sum(ref.tenant == tenant for ref in self.promised.values())
            own = [page for page, (ref, _) in self._entries() if ref.tenant == tenant]
            if len(own) + promised < limit:
                break
            gone = next((page for page in own if page not in self.pins), None)
            if gone is None:
                return False
            self.lose(gone)
        return True

    def _make_room(self) -> bool:
        """Room for one page in the host pool, beside what is promised."""
        while len(self.host) + len(self.disk) + len(self.promised) >= sum(self.sizes):
            gone = next((page for page in (*self.disk, *self.host) if page not in self.pins), None)
            if gone is None:
                return False
            self.lose(gone)
        while len(self.host) >= max(1, self.sizes[0]):
            page, kept = self.host.popitem(last=False)
            self.disk[page] = kept
        return True


class TieredDriver(Driver):
    """Background moves end `delay` steps after they were asked for, and read or write their pages only then."""

    def __init__(self, pages: int, below: LowerTiers, delay: int = 1, **config: Any) -> None:
        super().__init__(pages, below=below, **config)
        self.below = below
        self.delay = delay
        self.urgent = 0
        self.loaded = 0
        self._steps = 0
        self._under_way: list[tuple[int, Save | Load]] = []

    def step(self, between: Any = None) -> StepPlan | None:
        self._steps += 1
        self._end_moves()
        plan = super().step(between)
        if plan is None:
            self._begin_moves()
            self.now += 0.02
        assert not self.book.check()
        return plan

    def run(self, most: int = 3000) -> None:
        for _ in range(most):
            if self.step() is None and self.scheduler.idle and not self.scheduler.moving:
                break
        assert self.scheduler.idle, f"not done after {most} steps"

    def run_until(self, name: str) -> None:
        """Step until a request has ended."""
        while (name, 0) not in self.ended:
            self.step()

    def settle(self) -> None:
        """Let all background moves end, without a step."""
        while self.scheduler.moving:
            self._steps += 1
            self._end_moves()

    def _run(self, plan: StepPlan) -> None:
        self._begin_moves()
        super()._run(plan)

    def _begin_moves(self) -> None:
        moves = self.scheduler.take_moves()
        for save in moves.urgent:
            self.urgent += self.below.save(save.ref, self._read(save.number))
        self._under_way += [(self._steps + self.delay, move) for move in moves.writes]
        self._under_way += [(self._steps + self.delay, move) for move in moves.loads]

    def _end_moves(self) -> None:
        due = [move for when, move in self._under_way if when <= self._steps]
        self._under_way = [(when, move) for when, move in self._under_way if when > self._steps]
        for move in due:
            if isinstance(move, Save):
                self.below.save(move.ref, self._read(move.number))
                self.scheduler.written(move.ref.id)
            else:
                self.scheduler.landed(move.ticket, self._load(move))

    def _load(self, load: Load) -> int:
        for good, (ref, number) in enumerate(zip(load.refs, load.numbers, strict=True)):
            marks = self.below.load(ref)
            if marks is None:
                return good
            self.loaded += 1
            for slot, mark in enumerate(marks):
                if mark is not None:
                    self._kv[number, slot] = mark
        return len(load.refs)

    def _read(self, number: int) -> Marks:
        return [self._kv.get((number, slot)) for slot in range(PAGE_TOKENS)]
