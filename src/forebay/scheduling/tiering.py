"""The scheduler's book of moves between the device and the tiers below: what is saved, written through and loaded, and
what ended how. It moves no bytes and chooses no victim."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from forebay.core.messages import TierStats
from forebay.kv import PAGE_TOKENS, KvBook
from forebay.kv.identity import PUBLIC
from forebay.kv.moves import Below, Load, PagePlan, Save
from forebay.kv.tiers import PageRef, Where
from forebay.scheduling.reach import PageNames, Reach
from forebay.scheduling.room import Burden, Room
from forebay.scheduling.sequence import Sequence

_WRITES_SHARE = 4
"""Background copies read at most one in so many device pages at the same time."""
_WRITES_MOST = 256


@dataclass(frozen=True, slots=True)
class _Loading:
    sequence: Sequence
    reach: Reach
    numbers: list[int]


class TierCounts:
    """Totals since the start, in pages where not said otherwise."""

    def __init__(self) -> None:
        self.saved_urgent = 0
        """Copied down because their sequence was preempted."""
        self.dropped = 0
        """Lost with a preempted SPECULATIVE_DRAFT sequence; they are computed again if it goes on."""
        self.cached_host = 0
        """Prompt tokens."""
        self.cached_disk = 0
        """Prompt tokens."""
        self.loads = 0
        """Loads (not pages) that ended."""
        self.loads_short = 0
        """Loads (not pages) that brought fewer pages than were asked for."""
        self.restored = 0
        """Preempted sequences that came back with a load."""


class Tiering:
    """Pages that became full are written through, first come first served, at most a quarter of the device at a time.

    The queue holds ids, each at most once, and no more of them than the device has pages: older ones are given up.
    """

    def __init__(self, below: Below, book: KvBook, retention: str) -> None:
        """`retention` is the class of requests that name none."""
        self.below = below
        self.counts = TierCounts()
        self.loading: set[bytes] = set()
        """Ids of pages on their way up."""
        self._book = book
        self._names = PageNames(below, book, retention)
        self._unlucky: set[Sequence] = set()
        """Whose load came back short of a unit that can't do without: they are not loaded again."""
        self._plan = PagePlan()
        self._fresh: OrderedDict[bytes, PageRef] = OrderedDict()
        self._writing: dict[bytes, int] = {}
        self._loads: dict[int, _Loading] = {}
        self._tickets = 0

    @property
    def moving(self) -> bool:
        """Whether a background move has not ended."""
        return bool(self._writing or self._loads)

    def stats(self) -> TierStats:
        """Gauges and counters; what the tiers themselves count is left to the engine."""
        counts = self.counts
        return TierStats(
            pages_writing=len(self._writing),
            pages_loading=sum(len(load.numbers) for load in self._loads.values()),
            urgent_saves=counts.saved_urgent,
            dropped=counts.dropped,
            restored=counts.restored,
            loads=counts.loads,
            loads_short=counts.loads_short,
            prompt_tokens_host=counts.cached_host,
            prompt_tokens_disk=counts.cached_disk,
        )

    def take(self) -> PagePlan:
        """The moves planned since the last call, with as much write-through as may be under way now."""
        self._plan.writes = list(self._next_writes())
        taken, self._plan = self._plan, PagePlan()
        return taken

    def completed(self, sequence: Sequence, pages: Iterable[int]) -> None:
        """These pages of the sequence are registered and worth storing: they are to be written through."""
        for i in pages:
            ref = self._names.ref(sequence, i)
            self._fresh.setdefault(ref.id, ref)
        while len(self._fresh) > self._book.total:
            self._fresh.popitem(last=False)

    def unsaved(self, sequence: Sequence) -> list[Save]:
        """What must be copied down so that the sequence can leave the device and lose nothing, first pages first."""
        return self._not_under_way(self._lacking(sequence))

    def burden(self, sequence: Sequence) -> Burden:
        """How much of the room below `keep` of this sequence takes, and whose."""
        ids, tenant, public = self._ids(sequence), sequence.tenant, public_held(sequence)
        own = {tenant: self.below.burden(ids[public:], tenant)}
        return own if not public else {PUBLIC: self.below.burden(ids[:public], tenant)} | own

    def room(self) -> Room:
        """What could be saved now."""
        return Room(self.below.room(), self.below.room_of)

    def capacity(self) -> Room:
        """What could be kept given time."""
        return Room(self.below.capacity(), self.below.capacity_of)

    def _lacking(self, sequence: Sequence) -> list[Save]:
        """Its pages that are in no tier below, whether they are on their way or not."""
        pages, full = sequence.pages, sequence.pages.registered
        missing = [pages.start + i for i in self.below.missing(pages.ids[pages.start : full], sequence.tenant)]
        saves = [Save(self._names.ref(sequence, at), pages.numbers[at]) for at in missing]
        tail = self._names.tail(sequence, sequence.computed)
        if tail is not None and full == sequence.computed // PAGE_TOKENS:
            saves.append(Save(tail, pages.numbers[full]))
        return saves

    def _not_under_way(self, saves: list[Save]) -> list[Save]:
        return [save for save in saves if save.ref.id not in self._writing]

    def hurry(self, sequence: Sequence) -> None:
        """Write the sequence's pages through before all others."""
        full = [save.ref for save in self.unsaved(sequence) if save.ref.end % PAGE_TOKENS == 0]
        for ref in reversed(full):
            self._fresh[ref.id] = ref
            self._fresh.move_to_end(ref.id, last=False)

    def keep(self, victims: Iterable[Sequence]) -> dict[Sequence, list[Save]] | None:
        """Running sequences are about to give up their pages: room below for all that each has, till it is back.

        Returns what must be copied down of each, for `save_now`; what is under way has its room as well. None, with
        nothing changed, when they don't all find room.
        """
        lacking = {victim: self._lacking(victim) for victim in victims}
        ids = {victim: self._ids(victim) for victim in lacking}
        new = {save.ref.id: save.ref for saves in lacking.values() for save in saves}
        if not self.below.keep([page for pages in ids.values() for page in pages], list(new.values())):
            return None
        for victim, pages in ids.items():
            victim.parked, victim.parked_tokens = pages, victim.computed
        return {victim: self._not_under_way(saves) for victim, saves in lacking.items()}

    def keep_what_fits(self, victim: Sequence) -> list[Save]:
        """`keep` for a sequence whose pages don't all find room: what does is kept."""
        victim.parked, victim.parked_tokens = self._ids(victim), victim.computed
        self.below.pin(victim.parked)
        return self.unsaved(victim)

    def save_now(self, saves: Iterable[Save], moved: Mapping[int, int]) -> None:
        """Plan these copies, to be made before the step. `moved` has, for pages whose content was to be copied into
        them and is not, where it lies."""
        before = len(self._plan.urgent)
        self._plan.urgent += [Save(save.ref, moved.get(save.number, save.number)) for save in saves]
        self.counts.saved_urgent += len(self._plan.urgent) - before

    def expecting_room(self) -> bool:
        """Whether room below, or on the device, will come by itself: copies that have not ended."""
        return self.moving or self.below.cascade()

    def _ids(self, sequence: Sequence) -> list[bytes]:
        """The ids under which all that it needs of what it has computed is kept."""
        ids = sequence.pages.ids[sequence.pages.start : sequence.pages.registered]
        tail = self._names.tail(sequence, sequence.computed)
        return ids if tail is None else [*ids, tail.id]

    def unpark(self, sequence: Sequence) -> None:
        """The sequence is back, or has ended: what was kept for it may go."""
        if sequence.parked:
            self.below.unpin(sequence.parked)
        sequence.parked, sequence.parked_tokens = [], 0
        self._unlucky.discard(sequence)

    def reach(self, sequence: Sequence, start: int) -> Reach:
        """What can be loaded for a waiting sequence of which the first `start` pages are on the device."""
        return self._names.reach(sequence, start, device_only=sequence in self._unlucky)

    def used(self, sequence: Sequence, tokens: int) -> None:
        """A sequence begins to run with so many of its leading tokens found; of a new one, the rest was missed."""
        if sequence.first_scheduled is None:
            self.below.missed((sequence.length - 1) // PAGE_TOKENS - tokens // PAGE_TOKENS)
        ids = sequence.pages.ids[sequence.pages.start : tokens // PAGE_TOKENS]
        self.below.used(ids, self._names.retention(sequence))

    def load(self, sequence: Sequence, reach: Reach) -> None:
        """Plan the load into the sequence's pages; until it has landed the sequence takes no step."""
        numbers = [sequence.pages.numbers[i] for i in reach.at]
        self._tickets += 1
        sequence.loading = self._tickets
        self._book.begin_moves(numbers)
        self._loads[self._tickets] = _Loading(sequence, reach, numbers)
        self.loading.update(ref.id for ref in reach.refs)
        self._plan.loads.append(Load(self._tickets, reach.refs, numbers))

    def landed(self, ticket: int, good: int) -> Sequence | None:
        """A load ended, its first `good` pages intact. Returns the sequence if it still waits for it, with `computed`
        and its counts of cached tokens as they are now. Raises KeyError for a load that is not under way.
        """
        load = self._loads.pop(ticket)
        sequence, reach = load.sequence, load.reach
        self.loading.difference_update(ref.id for ref in reach.refs)
        self.counts.loads += 1
        self.counts.loads_short += good < len(reach.refs)
        waits = sequence.loading == ticket
        if waits:
            self._arrive(sequence, load, good)
        self._book.end_moves(load.numbers)
        return sequence if waits else None

    def written(self, page: bytes) -> None:
        """A background write-through ended, well or not. Raises KeyError for one that is not under way."""
        self._book.end_moves([self._writing.pop(page)])

    def _arrive(self, sequence: Sequence, load: _Loading, good: int) -> None:
        reach = load.reach
        sequence.loading = None
        if good < len(reach.refs) and self._book.policy is not None:
            self._begin_anew(sequence)
            return
        sequence.computed = reach.tokens if good == len(reach.refs) else reach.device + good * PAGE_TOKENS
        places = reach.places[:good]
        arrived = sequence.computed - reach.device
        disk = min(places.count(Where.DISK) * PAGE_TOKENS, arrived)
        # Tokens before a window are in no tier; they count for the slowest one that the window came from.
        sequence.loaded_disk = disk and disk + max(0, arrived - len(places) * PAGE_TOKENS)
        sequence.loaded_host = arrived - sequence.loaded_disk
        self._book.commit(sequence.pages, sequence.all_ids, sequence.computed)
        for ref, place in zip(reach.refs, places, strict=False):
            if place is Where.DISK and ref.end % PAGE_TOKENS == 0:
                self._fresh.setdefault(ref.id, ref)  # so that the host pool has it next time

    def _begin_anew(self, sequence: Sequence) -> None:
        """A unit that lacks a page is of no use: go on from what the device has, if anything, and compute the rest."""
        self._unlucky.add(sequence)
        sequence.loaded_disk = sequence.loaded_host = 0
        self._book.release(sequence.pages)
        sequence.computed = self._book.match_prefix(sequence.pages, sequence.all_ids)

    def _next_writes(self) -> Iterator[Save]:
        most = max(1, min(_WRITES_MOST, self._book.total // _WRITES_SHARE))
        while self._fresh and len(self._writing) < most:
            page, ref = self._fresh.popitem(last=False)
            number = self._book.number_of(page)
            if number is None or page in self._writing or self._in_host(ref):
                continue
            self._writing[page] = number
            self._book.begin_moves([number])
            yield Save(ref, number)

    def _in_host(self, ref: PageRef) -> bool:
        places = self.below.lookup([ref.id], ref.tenant).places
        return bool(places) and places[0] is not Where.DISK


def public_held(sequence: Sequence) -> int:
    """How many of the pages that the sequence holds are public: no tenant is charged for them."""
    return max(0, sequence.pages.public - sequence.pages.start)
