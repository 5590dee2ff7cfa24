"""What the scheduler's parts share: who waits, who runs, and the moves between. It does not choose who moves."""

from __future__ import annotations

from collections import Counter

from forebay.core.request import FinishReason
from forebay.kv import PAGE_TOKENS, KvBook
from forebay.scheduling.classes import LengthClasses
from forebay.scheduling.config import SchedulerConfig
from forebay.scheduling.queue import WaitingQueue
from forebay.scheduling.sequence import Sequence
from forebay.scheduling.tiering import Tiering


class Counters:
    """Totals since the start, in tokens where not said otherwise."""

    def __init__(self) -> None:
        self.prompt_computed = 0
        self.prompt_cached = 0
        self.generated = 0
        self.prefix_queried = 0
        self.preemptions = 0
        """Sequences put back."""
        self.preemptions_by: Counter[str] = Counter()
        """The same by "reason/priority class"."""
        self.recomputed_by: Counter[str] = Counter()
        """What preempted sequences compute again, by `Loss`."""


class State:
    """Every live sequence is either in `queue` or in `running`, and in `requests` under its request's id."""

    def __init__(self, config: SchedulerConfig, book: KvBook, tiers: Tiering | None = None) -> None:
        self.config = config
        self.book = book
        self.tiers = tiers
        """None where the device is the only tier."""
        self.classes = LengthClasses(config.class_bounds, config.class_share, config.min_chunk)
        self.queue = WaitingQueue(self.classes.count)
        self.running: dict[Sequence, None] = {}
        self.requests: dict[str, list[Sequence]] = {}
        self.slots = 0
        """Of `max_running`: taken by running sequences, or reserved by those that will fork."""
        self.counters = Counters()

    def level(self, sequence: Sequence, now: float) -> int:
        """Effective priority; lower is served first."""
        return sequence.level(now, self.config.aging_s)

    def rank(self, sequence: Sequence, now: float) -> tuple[int, tuple[float, int, int]]:
        """Who may keep pages rather than whom: effective priority, then arrival. Never equal for two sequences."""
        return sequence.level(now, self.config.aging_s), sequence.place

    def wait(self, sequence: Sequence, now: float) -> None:
        """Put a sequence that holds nothing into the queue."""
        sequence.starve(now)
        uncached = sequence.length - self.cached(sequence)
        self.queue.push(sequence, self.classes.of(uncached), uncached)

    def cached(self, sequence: Sequence) -> int:
        """Leading tokens of a waiting sequence that need not be computed: on the device or in a lower tier."""
        found = self.book.cached_tokens(sequence.pages, sequence.all_ids)
        return found if self.tiers is None else self.tiers.reach(sequence, found // PAGE_TOKENS).tokens

    def point(self, sequence: Sequence) -> int | None:
        """Where a waiting sequence of a model with a window goes on from, given all tiers; None: as the book finds."""
        if self.book.policy is None or self.tiers is None:
            return None
        return self.tiers.reach(sequence, 0).tokens

    def run(self, sequence: Sequence, slots: int) -> None:
        """The sequence holds its pages from now on."""
        sequence.slots = slots
        self.slots += slots
        self.running[sequence] = None

    def stop(self, sequence: Sequence) -> None:
        """A running sequence gives up its pages and slots."""
        self.book.release(sequence.pages)
        sequence.loading = None
        self.slots -= sequence.slots
        sequence.slots = 0
        del self.running[sequence]

    def put_back(self, sequence: Sequence, now: float) -> None:
        """A running sequence goes back into the queue; it keeps its output, arrival and page ids."""
        self.stop(sequence)
        sequence.computed = 0
        sequence.pages.reuse = sequence.pages.reuse or bool(sequence.output_ids)
        self.wait(sequence, now)

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """A live sequence ends, running or waiting; the request's id is free again once all its choices have ended."""
        sequence.finish_reason = reason
        if sequence in self.running:
            if self.tiers is not None:
                self.tiers.completed(sequence, self.book.ending(sequence.pages))
            self.stop(sequence)
        else:
            self.queue.remove(sequence)
        if self.tiers is not None:
            self.tiers.unpark(sequence)
        siblings = self.requests[sequence.request_id]
        siblings.remove(sequence)
        if not siblings:
            del self.requests[sequence.request_id]
