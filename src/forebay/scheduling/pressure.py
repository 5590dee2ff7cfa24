"""Room made before anyone has to wait for it: idle sequences go down while the device is nearly full. No eviction of
cached pages: those that are below already are as good as free."""

from __future__ import annotations

from forebay.scheduling.draft import Draft
from forebay.scheduling.preemption import put_back
from forebay.scheduling.state import State

HIGH = 0.85
"""Share of the device's pages held by live sequences above which idle ones are paged out."""
LOW = 0.75
"""The share down to which they are."""
_IDLE_S = 1.0
"""Seconds without service after which a running sequence is idle."""


def relieve(state: State, draft: Draft) -> None:
    """Page out running sequences that have got nothing for a second, lowest rank first, if the device is that full.

    Only what can be kept below goes. They come back by admission, which leaves 15 % of the device free for them.
    """
    book, tiers = state.book, state.tiers
    if tiers is None or book.used <= HIGH * book.total:
        return
    idle = [
        sequence
        for sequence in state.running
        if sequence not in draft.rows and sequence.loading is None and sequence.idle(draft.now) >= _IDLE_S
    ]
    idle.sort(key=lambda sequence: state.rank(sequence, draft.now), reverse=True)
    for sequence in idle:
        if book.used <= LOW * book.total:
            return
        put_back(state, draft, [sequence], "pressure")
