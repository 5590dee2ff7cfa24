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
_STUCK_S = 0.25
"""Seconds that rows wait for room below while nothing else runs, before someone loses pages."""


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
    """Room for a decode row, if need be by putting back running sequences of lower rank, or else the asker itself.

    Returns the copies to make; None when the asker was put back, or waits because nobody can go without a loss.
    """
    book = state.book
    copies = book.grow(sequence.pages, sequence.computed, sequence.length)
    if copies is not None:
        return copies
    rank = state.rank(sequence, draft.now)
    below = [other for other in _able(state) if state.rank(other, draft.now) > rank]
    short = book.short(sequence.pages, sequence.computed, sequence.length)
    victims = _choose(state, draft, below, short)
    if victims is None and to_save(state, sequence) <= (state.tiers.room if state.tiers else 0):
        victims = [sequence]
    for victim in victims or ():
        preempt(state, draft, victim, "growth")
    if sequence not in state.running:
        return None
    copies = book.grow(sequence.pages, sequence.computed, sequence.length)
    if copies is None:
        sequence.starve(draft.now)
    return copies


def unblock(state: State, draft: Draft) -> None:
    """Nothing runs, and rows have waited for a page for so long that no room will come below: the lowest rank is put
    back, and what finds no room is computed again. The highest rank is never a victim unless it is alone, so some
    sequence always gets on to its end.
    """
    if any(sequence.decoding and sequence.idle(draft.now) >= _STUCK_S for sequence in _able(state)):
        preempt(state, draft, max(_able(state), key=lambda other: state.rank(other, draft.now)), "growth")


def _able(state: State) -> list[Sequence]:
    """Running sequences that can be put back: those that no load is filling."""
    return [running for running in state.running if running.loading is None]


def _choose(
    state: State, draft: Draft, candidates: list[Sequence], pages: int, slots: int = 0
) -> list[Sequence] | None:
    """Those that must go so that `pages` pages and `slots` slots are free, lowest rank first; None if it can't be.

    Only sequences that lose nothing. If they have much to save, that is begun in the background, and the answer is
    None until it is done.
    """
    candidates.sort(key=lambda running: state.rank(running, draft.now), reverse=True)
    victims: list[Sequence] = []
    seen: Counter[int] = Counter()
    room, saves = state.tiers.room if state.tiers else 0, 0
    for victim in candidates:
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


def victims_for(state: State, draft: Draft, sequence: Sequence, slots: int) -> list[Sequence] | None:
    """Running sequences of strictly lower effective priority that must go so that `sequence` fits; None if that is
    not enough.

    Lowest rank first, no more than needed. `sequence` waits, but holds the pages that it found in the prefix cache.
    """
    level = state.level(sequence, draft.now)
    lower = [running for running in _able(state) if state.level(running, draft.now) > level]
    pages = state.book.missing(sequence.pages, sequence.length + 1)
    return _choose(state, draft, lower, pages, slots + state.slots - state.config.max_running)


def _hurry(state: State, victims: list[Sequence]) -> bool:
    """Have the victims written through before all else. False: they can't go yet."""
    if state.tiers is not None:
        for victim in victims:
            state.tiers.hurry(victim)
    return False
