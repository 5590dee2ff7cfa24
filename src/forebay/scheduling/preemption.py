"""Who is put back when pages or slots run out. A victim always ranks below the one that asks; nothing is moved in
vain."""

from __future__ import annotations

from collections import Counter

from forebay.scheduling.draft import Draft
from forebay.scheduling.sequence import Sequence
from forebay.scheduling.state import State


def preempt(state: State, draft: Draft, victim: Sequence) -> None:
    """Put a running sequence back into the queue and take it out of the step."""
    draft.preempt(victim)
    state.put_back(victim, draft.now)
    state.counters.preemptions += 1


def grow_or_preempt(state: State, draft: Draft, sequence: Sequence) -> list[tuple[int, int]] | None:
    """Room for a decode row: while there is none, the running sequence of lowest rank is put back, perhaps the asker.

    Returns the copies to make, or None when the asker was put back. The highest rank is never a victim, and its rank
    can only be overtaken a few times by aging: so some sequence always gets on to its end.
    """
    while True:
        copies = state.book.grow(sequence.pages, sequence.computed, sequence.length)
        if copies is not None:
            return copies
        victim = max(state.running, key=lambda running: state.rank(running, draft.now))
        preempt(state, draft, victim)
        if victim is sequence:
            return None


def victims_for(state: State, draft: Draft, sequence: Sequence, slots: int) -> list[Sequence] | None:
    """Running sequences of strictly lower effective priority that must go so that `sequence` fits; None if that is
    not enough.

    Lowest rank first, no more than needed. `sequence` waits, but holds the pages that it found in the prefix cache.
    """
    now, level = draft.now, state.level(sequence, draft.now)
    lower = [running for running in state.running if state.level(running, now) > level]
    lower.sort(key=lambda running: state.rank(running, now), reverse=True)
    pages = state.book.missing(sequence.pages, sequence.length + 1)
    slots += state.slots - state.config.max_running
    victims: list[Sequence] = []
    seen: Counter[int] = Counter()
    for victim in lower:
        if pages <= 0 and slots <= 0:
            break
        pages -= state.book.freed_by(victim.pages, seen)
        slots -= victim.slots
        victims.append(victim)
    return victims if pages <= 0 and slots <= 0 else None
