"""Which prompts get a chunk in a step. The order is that of `Candidates`, room is found by `admission`."""

from __future__ import annotations

from forebay.scheduling.admission import admit
from forebay.scheduling.budget import ChunkBudget
from forebay.scheduling.candidates import Candidates
from forebay.scheduling.draft import Draft
from forebay.scheduling.preemption import grow_or_preempt
from forebay.scheduling.sequence import Sequence
from forebay.scheduling.state import State

_OVERDUE_LEVELS = 4
"""After so many times `aging_s` without service a request has risen past every priority."""


class PrefillStage:
    """Fills one step with chunks, asking prompts in progress and waiting ones in the order of `Candidates`.

    A request that finds no room holds back the admission of lower effective priorities, and once it is overdue that
    of all younger requests. A request whose next page is being computed by this very step, or loaded, waits for it
    instead.
    """

    def __init__(self, state: State, draft: Draft, in_progress: list[Sequence]) -> None:
        self._state = state
        self._draft = draft
        self._in_progress = in_progress
        self._budget = ChunkBudget(state.config, draft)
        self._candidates = Candidates(state, in_progress, draft.now)
        self._computing: set[bytes] = set()
        self._served: list[tuple[int, int, int]] = []
        self._held_level: int | None = None
        self._held_place: tuple[float, int, int] | None = None

    def fill(self) -> None:
        """Add chunks to the draft until no more fits or nobody is left to ask."""
        while not self._budget.spent:
            sequence = self._candidates.pop()
            if sequence is None:
                break
            if sequence.slots:
                self._chunk(sequence, self._size(sequence, sequence.computed))
            elif sequence not in self._draft.preempted:
                self._begin(sequence)
        self._account()

    def _begin(self, sequence: Sequence) -> None:
        state = self._state
        cached = state.cached(sequence)
        if self._moved(sequence, cached) or self._held_back(sequence):
            return
        missing = state.book.missing_page(sequence.pages, sequence.all_ids)
        if missing in self._computing or (state.tiers is not None and missing in state.tiers.loading):
            return
        tokens = self._size(sequence, cached)
        if not tokens:
            return
        if admit(state, self._draft, sequence):
            if sequence.loading is None:
                self._chunk(sequence, tokens)
            self._candidates.push_head(sequence.length_class, sequence.priority)
        else:
            self._hold_back_others(sequence)

    def _size(self, sequence: Sequence, start: int) -> int:
        config = self._state.config
        owed = self._state.classes.owed(self._candidates.class_of(sequence))
        return self._budget.chunk(start, sequence.length - start, config.min_chunk if owed else config.max_chunk)

    def _chunk(self, sequence: Sequence, tokens: int) -> None:
        if not tokens or not self._may_compute(sequence, tokens):
            return
        page = self._state.book.next_page(sequence.pages, sequence.all_ids, sequence.computed + tokens)
        if page is not None:
            self._computing.add(page)
        level = self._state.level(sequence, self._draft.now)
        self._served.append((self._candidates.class_of(sequence), level, tokens))
        self._draft.add_chunk(sequence, tokens)

    def _may_compute(self, sequence: Sequence, tokens: int) -> bool:
        """Whether a chunk has its pages: always, but where attention has a window and they come as others go."""
        if self._state.book.policy is None:
            return True
        end = sequence.computed + tokens
        return grow_or_preempt(self._state, self._draft, sequence, end) is not None

    def _moved(self, sequence: Sequence, cached: int) -> bool:
        """Whether the prefix cache has changed so much that the sequence is of another class; it is asked again
        there."""
        uncached, before = sequence.length - cached, sequence.length_class
        length_class = self._state.classes.of(uncached)
        if length_class == before:
            return False
        self._state.queue.remove(sequence)
        self._state.queue.push(sequence, length_class, uncached)
        self._candidates.again(sequence)
        self._candidates.push_head(before, sequence.priority)
        return True

    def _held_back(self, sequence: Sequence) -> bool:
        if self._held_place is not None and sequence.place > self._held_place:
            return True
        return self._held_level is not None and self._state.level(sequence, self._draft.now) > self._held_level

    def _hold_back_others(self, sequence: Sequence) -> None:
        level = self._state.level(sequence, self._draft.now)
        self._held_level = level if self._held_level is None else min(level, self._held_level)
        overdue = sequence.unserved(self._draft.now) >= _OVERDUE_LEVELS * self._state.config.aging_s
        if overdue and self._held_place is None:
            self._held_place = sequence.place

    def _account(self) -> None:
        """Classes that got less than they could use earn a share; prompts that were passed over age."""
        state, now = self._state, self._draft.now
        unserved = [sequence for sequence in self._in_progress if sequence.slots and sequence not in self._draft.rows]
        for sequence in unserved:
            sequence.starve(now)
        waiting: dict[int, int] = {}
        for sequence in (*unserved, *state.queue.heads()):
            length_class, level = self._candidates.class_of(sequence), state.level(sequence, now)
            waiting[length_class] = min(level, waiting.get(length_class, level))
        state.classes.account(self._served, waiting)
