"""Who is put back when pages or slots run out. A victim always ranks below the one that asks; nothing is moved in
vain."""

from __future__ import annotations

from collections import Counter

from forebay.core.request import Priority
from forebay.scheduling.draft import Draft
from forebay.scheduling.room import Burden, Room
from forebay.scheduling.safety import may_grow
from forebay.scheduling.sequence import Loss, Sequence
from forebay.scheduling.state import State

_URGENT_MOST = 16
"""Pages that may be copied down before a step; what is more is written through first, and the asker waits for it."""
_STUCK_S = 0.25
"""Seconds that rows wait for a page while nothing else runs, before someone goes out of turn."""


def put_back(state: State, draft: Draft, victims: list[Sequence], reason: str) -> bool:
    """Put running sequences back into the queue and take them out of the step: all of them, or, when they don't all
    find room below, none (False).

    What is of them on the device alone is copied down before the step, unless the victim is a SPECULATIVE_DRAFT or has
    to begin anew in any case.
    """
    tiers = state.tiers
    saves = {} if tiers is None else tiers.keep([victim for victim in victims if _loss(state, victim) is None])
    if saves is None:
        return False
    for victim in victims:
        moved = draft.preempt(victim)
        if tiers is not None and victim in saves:
            tiers.save_now(saves[victim], moved)
        elif tiers is not None and victim.priority is Priority.SPECULATIVE_DRAFT:
            tiers.counts.dropped += len(tiers.unsaved(victim))
        _leave(state, draft, victim, reason)
    return True


def _leave(state: State, draft: Draft, victim: Sequence, reason: str) -> None:
    victim.loss = _loss(state, victim) or Loss.DAMAGE
    state.put_back(victim, draft.now)
    state.counters.preemptions += 1
    state.counters.preemptions_by[f"{reason}/{victim.priority.name.lower()}"] += 1


def _loss(state: State, victim: Sequence) -> Loss | None:
    """Why a victim's pages are not kept, or None when they are."""
    if state.tiers is None:
        return Loss.NO_TIER
    if not (victim.pages.reuse or victim.output_ids):
        return Loss.LOGPROBS
    return Loss.DRAFT if victim.priority is Priority.SPECULATIVE_DRAFT else None


def grow_or_preempt(state: State, draft: Draft, sequence: Sequence, end: int) -> list[tuple[int, int]] | None:
    """Room for a row up to token `end`, if need be by putting back running sequences of lower rank, or else the asker
    itself. Prefill chunks need it only where a sequence gives up pages as it gets on.

    Returns the copies to make; None when the asker was put back, or waits: because nobody can go without a loss, or
    because with one page less not all who run could come to their ends.
    """
    book = state.book
    if book.ready(sequence.pages, sequence.computed, end):
        return []
    short = book.short(sequence.pages, sequence.computed, end)
    if short <= 0 and not _may_take(state, sequence, short + book.available):
        sequence.starve(draft.now)
        return None
    copies = book.grow(sequence.pages, sequence.computed, end)
    if copies is not None:
        return copies
    rank = state.rank(sequence, draft.now)
    below = [other for other in _able(state) if state.rank(other, draft.now) > rank]
    victims = _choose(state, draft, below, short)
    if victims is not None and put_back(state, draft, victims, "growth"):
        copies = book.grow(sequence.pages, sequence.computed, end)
    elif _may_leave(state, sequence) and put_back(state, draft, [sequence], "growth"):
        return None
    if copies is None:
        sequence.starve(draft.now)
    return copies


def _may_take(state: State, sequence: Sequence, pages: int) -> bool:
    return not pages or state.tiers is None or may_grow(state, sequence, pages)


def step_aside(state: State, sequence: Sequence, now: float) -> None:
    """Put a running sequence that is in no plan back into the queue, and keep what it has where a few copies do."""
    tiers = state.tiers
    if tiers is not None:
        saves = tiers.keep([sequence]) if _may_leave(state, sequence) else None
        tiers.save_now((saves or {}).get(sequence, []), {})
        sequence.loss = Loss.DAMAGE if saves else Loss.NO_ROOM
    sequence.loss = _loss(state, sequence) or sequence.loss
    state.put_back(sequence, now)


def unblock(state: State, draft: Draft) -> None:
    """Nothing runs, and rows have waited for a page for some time: who can go without a loss goes, whatever its rank.

    Failing that, and if no room below is to come, the lowest rank is put back, and what finds no room is computed
    again: the tiers have become smaller than they were when it was let in. The highest rank is never that victim
    unless it is alone, so some sequence always gets on to its end.
    """
    able = sorted(_able(state), key=lambda other: state.rank(other, draft.now))
    sliding = state.book.policy is not None  # then prefill takes pages too
    waiting = [other for other in able if (sliding or other.decoding) and other.idle(draft.now) >= _STUCK_S]
    for sequence in waiting:
        end = state.book.first_end(sequence.pages, sequence.length)
        short = state.book.short(sequence.pages, sequence.computed, end)
        victims = _choose(state, draft, [other for other in able if other is not sequence], short)
        if victims and put_back(state, draft, victims, "growth"):
            return
    if waiting and state.tiers is not None and not state.tiers.expecting_room():
        victim = able[-1]
        saves = state.tiers.keep_what_fits(victim)
        state.tiers.save_now(saves, draft.preempt(victim))
        _leave(state, draft, victim, "growth")
        victim.loss = _loss(state, victim) or Loss.NO_ROOM


def _able(state: State) -> list[Sequence]:
    """Running sequences that can be put back: those that no load is filling."""
    return [running for running in state.running if running.loading is None]


def _choose(
    state: State, draft: Draft, candidates: list[Sequence], pages: int, slots: int = 0
) -> list[Sequence] | None:
    """Those that must go so that `pages` pages and `slots` slots are free, lowest rank first; None if it can't be.

    Only sequences that lose nothing: one whose pages find no room below, be it that its tenant may hold no more there,
    is passed over. If they have much to save, that is begun in the background, and the answer is None until it is done;
    if the room below is too small for them, room is being made there.
    """
    candidates.sort(key=lambda running: state.rank(running, draft.now), reverse=True)
    victims: list[Sequence] = []
    seen: Counter[int] = Counter()
    room, cramped = _room(state), False
    for victim in candidates:
        if pages <= 0 and slots <= 0:
            break
        wanted = _burden(state, victim)
        if not room.fits(wanted):
            cramped = True
            continue
        room.take(wanted)
        pages -= state.book.freed_by(victim.pages, seen)
        slots -= victim.slots
        victims.append(victim)
    if pages > 0 or slots > 0:
        if cramped and state.tiers is not None:
            state.tiers.below.cascade()
        return None
    return victims if _are_below(state, victims) else None


def _room(state: State) -> Room:
    """The room below that victims may take now."""
    return Room(0, lambda _: None) if state.tiers is None else state.tiers.room()


def _burden(state: State, victim: Sequence) -> Burden:
    """How much of the room below it takes to keep a victim's pages."""
    return {} if state.tiers is None or _loss(state, victim) else state.tiers.burden(victim)


def _may_leave(state: State, sequence: Sequence) -> bool:
    """Whether a sequence can leave by itself and lose nothing. If it has no room below, nothing is copied there: its
    pages would only push out others of its tenant."""
    if _room(state).fits(_burden(state, sequence)):
        return _are_below(state, [sequence])
    if state.tiers is not None:
        state.tiers.below.cascade()
    return False


def victims_for(state: State, draft: Draft, sequence: Sequence, slots: int) -> list[Sequence] | None:
    """Running sequences of strictly lower effective priority that must go so that `sequence` fits; None if that is
    not enough.

    Lowest rank first, no more than needed. `sequence` waits, but holds the pages that it found in the prefix cache.
    """
    level = state.level(sequence, draft.now)
    lower = [running for running in _able(state) if state.level(running, draft.now) > level]
    pages = state.book.missing(sequence.pages, sequence.length + 1)
    return _choose(state, draft, lower, pages, slots + state.slots - state.config.max_running)


def _are_below(state: State, victims: list[Sequence]) -> bool:
    """Whether no more than a few pages of the victims must be copied down; else they are written through before all
    others, and the victims can't go yet."""
    tiers = state.tiers
    kept = [victim for victim in victims if _loss(state, victim) is None]
    if tiers is None or sum(len(tiers.unsaved(victim)) for victim in kept) <= _URGENT_MOST:
        return True
    for victim in kept:
        tiers.hurry(victim)
    return False
