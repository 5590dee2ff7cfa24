"""From the queue to the running sequences: whether there is room, and taking it. Not in which order they are asked."""

from __future__ import annotations

from forebay.kv import PAGE_TOKENS
from forebay.scheduling.draft import Draft
from forebay.scheduling.preemption import put_back, victims_for
from forebay.scheduling.reach import Reach
from forebay.scheduling.safety import may_begin
from forebay.scheduling.sequence import Sequence
from forebay.scheduling.state import State

_RESUME_SHARE = 0.15
"""Of the device's pages, the same for a sequence that lower tiers keep: above 85 % use the idle ones go down again."""
_RESUME_MARGIN = 4
"""Pages that must stay free beside a sequence that was put back before, so that it isn't put back again at once."""


def admit(state: State, draft: Draft, sequence: Sequence) -> bool:
    """Give a waiting sequence pages for all its tokens, and its slots, or leave everything as it is and return False.

    What lower tiers have of it begins to be loaded; until that has landed it runs, but takes no step.
    Room is wanted for its tokens and a margin: a page for each running sequence to grow into, and more for one that
    was put back; and all who run must be able to come to their ends with nothing lost (`safety`). With nothing running
    none of this is asked for, so whatever fits alone is admitted. Failing that, sequences of strictly lower effective
    priority are preempted if that gives room.
    """
    slots = min(sequence.choices, state.config.max_running)
    if not _has_room(state, sequence, slots) and not _make_room(state, draft, sequence, slots):
        return False
    state.queue.remove(sequence)
    reach = None if state.book.policy is None or state.tiers is None else state.tiers.reach(sequence, 0)
    found = state.book.match_prefix(sequence.pages, sequence.all_ids, None if reach is None else reach.tokens)
    state.book.expect(sequence.pages, sequence.prompt_ids)
    end = state.book.first_end(sequence.pages, sequence.length)
    if state.book.grow(sequence.pages, found, end) is None:
        raise ValueError(f"no pages for sequence {sequence.request_id}, though there was room for it")
    sequence.computed = found
    state.run(sequence, slots)
    if not _load(state, sequence, found // PAGE_TOKENS, reach):
        count_cached(state, sequence)
    return True


def _load(state: State, sequence: Sequence, start: int, reach: Reach | None) -> bool:
    if state.tiers is None:
        return False
    reach = reach or state.tiers.reach(sequence, start)
    state.tiers.used(sequence, reach.tokens)
    if reach.refs:
        state.tiers.load(sequence, reach)
    else:
        state.tiers.unpark(sequence)
    return bool(reach.refs)


def _has_room(state: State, sequence: Sequence, slots: int) -> bool:
    if state.slots + slots > state.config.max_running:
        return False
    spare = 0
    if state.running:
        spare = len(state.running) + sequence.choices + (_RESUME_MARGIN if sequence.output_ids else 0)
        if sequence.parked:
            spare = max(spare, int(_RESUME_SHARE * state.book.total))
    if not state.book.fits(sequence.pages, sequence.all_ids, spare, state.point(sequence)):
        return False
    return state.tiers is None or may_begin(state, sequence)


def _make_room(state: State, draft: Draft, sequence: Sequence, slots: int) -> bool:
    level = state.level(sequence, draft.now)
    if all(state.level(running, draft.now) <= level for running in state.running):
        return False
    # Held while victims are chosen: pages that it shares with a victim are not freed for it.
    state.book.match_prefix(sequence.pages, sequence.all_ids, state.point(sequence))
    victims = victims_for(state, draft, sequence, slots)
    state.book.release(sequence.pages)
    if victims is None or (state.tiers is not None and not may_begin(state, sequence, victims)):
        return False
    return put_back(state, draft, victims, "admission")


def count_cached(state: State, sequence: Sequence) -> None:
    """Prefix cache counters, once for a request: what a resumed sequence finds is mostly its own. Of that one, count
    what it has to compute again."""
    state.counters.recomputed_by[sequence.loss] += max(0, sequence.reached - sequence.computed)
    if sequence.first_scheduled is not None:
        return
    sequence.cached_tokens = sequence.computed
    sequence.cached_host, sequence.cached_disk = sequence.loaded_host, sequence.loaded_disk
    if state.book.prefix_cache and sequence.pages.reuse:
        state.counters.prefix_queried += sequence.length
        state.counters.prompt_cached += sequence.computed
        if state.tiers is not None:
            state.tiers.counts.cached_host += sequence.cached_host
            state.tiers.counts.cached_disk += sequence.cached_disk
