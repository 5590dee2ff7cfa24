"""Which prompts get a chunk in a step, and in which order they are asked. It finds no room and sizes no chunk."""

from __future__ import annotations

from forebay.scheduling.admission import admit
from forebay.scheduling.budget import ChunkBudget
from forebay.scheduling.draft import Draft
from forebay.scheduling.sequence import Sequence
from forebay.scheduling.state import State

_OVERDUE_LEVELS = 4
"""After so many times `aging_s` in the queue a request has risen past every priority: nobody younger goes before it."""


class PrefillStage:
    """Fills one step with chunks: by effective priority, then shorter classes first (unless a longer one is owed a
    chunk), then by arrival.

    Prompts in progress count by what is left of them. A request that finds no room holds back the admission of lower
    effective priorities, and once it is overdue that of all younger requests.
    """

    def __init__(self, state: State, draft: Draft, in_progress: list[Sequence]) -> None:
        self._state = state
        self._draft = draft
        self._budget = ChunkBudget(state.config, draft)
        self._in_progress = in_progress
        self._asked: set[Sequence] = set()
        self._computing: set[bytes] = set()
        self._served = [0] * state.classes.count
        self._held_level: int | None = None
        self._held_place: tuple[float, int, int] | None = None

    def fill(self) -> None:
        """Add chunks to the draft until no more fits or nobody is left to ask."""
        while not self._budget.spent:
            sequence = self._next()
            if sequence is None:
                break
            self._asked.add(sequence)
            if sequence in self._state.running:
                self._continue(sequence)
            else:
                self._begin(sequence)
        self._account()

    def _next(self) -> Sequence | None:
        candidates = [sequence for sequence in self._in_progress if sequence not in self._asked]
        candidates += [sequence for sequence in self._state.queue.heads() if sequence not in self._asked]
        return min(candidates, key=self._key, default=None)

    def _key(self, sequence: Sequence) -> tuple[int, bool, int, tuple[float, int, int]]:
        length_class = self._class(sequence)
        first = self._overdue(sequence) or self._state.classes.owed(length_class)
        level = sequence.turn_level(self._draft.now, self._state.config.aging_s)
        return level, not first, length_class, sequence.place

    def _class(self, sequence: Sequence) -> int:
        return self._state.classes.of(sequence.remaining) if sequence.slots else sequence.length_class

    def _overdue(self, sequence: Sequence) -> bool:
        patience = _OVERDUE_LEVELS * self._state.config.aging_s
        return not sequence.slots and sequence.unserved(self._draft.now) >= patience

    def _continue(self, sequence: Sequence) -> None:
        self._chunk(sequence, self._class(sequence), self._size(sequence, sequence.computed))

    def _begin(self, sequence: Sequence) -> None:
        state = self._state
        cached = state.book.cached_tokens(sequence.pages, sequence.all_ids)
        if self._moved(sequence, cached) or self._held_back(sequence):
            return
        if state.book.missing_page(sequence.pages, sequence.all_ids) in self._computing:
            return
        tokens = self._size(sequence, cached)
        if not tokens:
            return
        if admit(state, self._draft, sequence):
            self._chunk(sequence, sequence.length_class, tokens)
        else:
            self._hold_back_others(sequence)

    def _size(self, sequence: Sequence, start: int) -> int:
        config = self._state.config
        owed = self._state.classes.owed(self._class(sequence))
        return self._budget.chunk(start, sequence.length - start, config.min_chunk if owed else config.max_chunk)

    def _chunk(self, sequence: Sequence, length_class: int, tokens: int) -> None:
        if not tokens:
            return
        page = self._state.book.next_page(sequence.pages, sequence.all_ids, sequence.computed + tokens)
        if page is not None:
            self._computing.add(page)
        self._served[length_class] += tokens
        self._draft.add_chunk(sequence, tokens)
        sequence.serve(self._draft.now)

    def _moved(self, sequence: Sequence, cached: int) -> bool:
        """Whether the prefix cache has changed so much that the sequence is of another class; it is asked again
        there."""
        uncached = sequence.length - cached
        length_class = self._state.classes.of(uncached)
        if length_class == sequence.length_class:
            return False
        self._state.queue.remove(sequence)
        self._state.queue.push(sequence, length_class, uncached)
        self._asked.discard(sequence)
        return True

    def _held_back(self, sequence: Sequence) -> bool:
        if self._held_place is not None and sequence.place > self._held_place:
            return True
        return self._held_level is not None and self._state.level(sequence, self._draft.now) > self._held_level

    def _hold_back_others(self, sequence: Sequence) -> None:
        if self._held_level is None:
            self._held_level = self._state.level(sequence, self._draft.now)
        if self._held_place is None and self._overdue(sequence):
            self._held_place = sequence.place

    def _account(self) -> None:
        """Classes that got less than they could use earn a share; prompts that were passed over age."""
        unserved = [sequence for sequence in self._in_progress if sequence not in self._draft.rows]
        for sequence in unserved:
            if sequence in self._state.running:
                sequence.starve(self._draft.now)
        waiting = {self._class(sequence) for sequence in (*unserved, *self._state.queue.heads())}
        self._state.classes.account(self._served, waiting)
