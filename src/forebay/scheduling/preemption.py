"""Who is put back when pages or slots run out. A victim always ranks below the one that asks; nothing is moved in
vain."""

from __future__ import annotations

from collections import Counter

from forebay.core.request import Priority
from forebay.scheduling.draft import Draft
from forebay.scheduling.sequence import Sequence
from forebay.scheduling.state import State

_URGENT_MOST = 16
"""Pages that may be copied down before a step; what is more is written through first, and the asker waits for it."""


def preempt(state: State, draft: Draft, victim: Sequence, reason: str) -> None:
    """Put a running sequence back into the queue and take it out of the step.

    What is of it on the device alone is copied down before the step, unless the victim is a SPECULATIVE_DRAFT or has
    to begin anew in any case.
    """
    moved = draft.preempt(victim)
    if state.tiers is not None and (victim.pages.reuse or victim.output_ids):
        if victim.priority is Priority.SPECULATIVE_DRAFT:
            state.tiers.counts.dropped += len(state.tiers.unsaved(victim))
        else:
            state.tiers.park(victim, moved)
    state.put_back(victim, draft.now)
    state.counters.preemptions += 1
    state.counters.preemptions_by[f"{reason}/{victim.priority.name.lower()}"] += 1


def to_save(state: State, victim: Sequence) -> int:
    """How many pages must be copied down so that the victim loses nothing."""
    if state.tiers is None or victim.priority is Priority.SPECULATIVE_DRAFT:
        return 0
    return len(state.tiers.unsaved(victim))


def grow_or_preempt(state: State, draft: Draft, sequence: Sequence) -> list[tuple[int, int]] | None:
    """Room for a decode row: while there is none, the running sequence of lowest rank is put back, perhaps the asker.

    Returns the copies to make, or None when the asker was put back. The highest rank is never a victim, and its rank
    can only be overtaken a few times by aging: so some sequence always gets on to its end.
    """
    while True:
        copies = state.book.grow(sequence.pages, sequence.computed, sequence.length)
        if copies is not None:
            return copies
        able = (running for running in state.running if running.loading is None)
        victim = max(able, key=lambda running: state.rank(running, draft.now))
        preempt(state, draft, victim, "growth")
        if victim is sequence:
            return None


def victims_for(state: State, draft: Draft, sequence: Sequence, slots: int) -> list[Sequence] | None:
    """Running sequences of strictly lower effective priority that must go so that `sequence` fits; None if that is
    not enough.

    Lowest rank first, no more than needed. `sequence` waits, but holds the pages that it found in the prefix cache.
    With lower tiers, only sequences that lose nothing are victims; if they have much to save, that is begun in the
    background, and the answer is None until it is done.
    """
    now, level = draft.now, state.level(sequence, draft.now)
    lower = [running for running in state.running if running.loading is None and state.level(running, now) > level]
    lower.sort(key=lambda running: state.rank(running, now), reverse=True)
    pages = state.book.missing(sequence.pages, sequence.length + 1)
    slots += state.slots - state.config.max_running
    victims: list[Sequence] = []
    seen: Counter[int] = Counter()
    room, saves = state.tiers.room if state.tiers else 0, 0
    for victim in lower:
        if pages <= 0 and slots <= 0:
            break
        wanted = to_save(state, victim)
        if saves + wanted > room:
            continue
        saves += wanted
        pages -= state.book.freed_by(victim.pages, seen)
        slots -= victim.slots
        victims.append(victim)
    if pages > 0 or slots > 0:
        return None
    return victims if saves <= _URGENT_MOST or _hurry(state, victims) else None


def _hurry(state: State, victims: list[Sequence]) -> bool:
    """Have the victims written through before all else. False: they can't go yet."""
    if state.tiers is not None:
        for victim in victims:
            state.tiers.hurry(victim)
    return False
