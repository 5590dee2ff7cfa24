"""What the tiers hold of a waiting sequence, and under which names: what could be loaded. It loads nothing."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import islice

from forebay.kv import PAGE_TOKENS, KvBook, ResumePolicy, page_id
from forebay.kv.identity import PUBLIC
from forebay.kv.moves import Below
from forebay.kv.retention import NONE
from forebay.kv.tiers import PageRef, Where
from forebay.scheduling.sequence import Sequence

_LOOK_AHEAD = 64
"""Pages that are hashed and looked up at a time."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What the tiers below hold of a sequence and the device lacks."""

    refs: list[PageRef]
    places: list[Where]
    at: Seq[int]
    """Which pages of the sequence they are."""
    tokens: int
    """Leading tokens of the sequence that need not be computed once all of it is loaded."""
    device: int
    """Tokens in pages that the device has."""


class PageNames:
    """Names the pages of sequences for the tiers below, and looks them up there."""

    def __init__(self, below: Below, book: KvBook, retention: str) -> None:
        """`retention` is the class of requests that name none."""
        self._below = below
        self._book = book
        self._retention = retention

    def reach(self, sequence: Sequence, start: int, device_only: bool = False) -> Reach:
        """What can be loaded for a waiting sequence of which the first `start` pages are on the device.

        Where attention has a window everywhere, `start` is of no use: what counts are the pages before the last point
        from which the sequence can be resumed, wherever each of them is. `device_only` leaves out the tiers below.
        """
        policy = self._book.policy
        if not (self._book.prefix_cache and sequence.pages.reuse) or (device_only and policy is None):
            return Reach([], [], (), start * PAGE_TOKENS, start * PAGE_TOKENS)
        if policy is None:
            return self._leading(sequence, start)
        return self._window(sequence, policy, device_only)

    def ref(self, sequence: Sequence, i: int) -> PageRef:
        """The name of full page `i`.

        A tier gives up a page only when it has none that follows it. Where attention has a window, a page is of use
        without those before it, and they are worth less than it: so there each page says that it follows the root.
        """
        pages = sequence.pages
        page = pages.id_at(i, sequence.all_ids)
        tenant = PUBLIC if i < pages.public else sequence.tenant
        parent = pages.parent(i if self._book.policy is None else 0)
        return PageRef(page, parent, tenant, self.retention(sequence), (i + 1) * PAGE_TOKENS)

    def tail(self, sequence: Sequence, tokens: int) -> PageRef | None:
        """The partly filled page at the end of the first `tokens` tokens, if there is one. Nobody else can use it: it
        goes to disk only when the host pool is full."""
        full, rest = divmod(tokens, PAGE_TOKENS)
        if not rest:
            return None
        pages = sequence.pages
        if full:
            pages.id_at(full - 1, sequence.all_ids)
        tenant = PUBLIC if full < pages.public else sequence.tenant
        ids = list(islice(sequence.all_ids, full * PAGE_TOKENS, tokens))
        return PageRef(page_id(pages.seed(full), ids), pages.parent(full), tenant, NONE, tokens)

    def retention(self, sequence: Sequence) -> str:
        """The class of a sequence's pages."""
        return sequence.request.retention or self._retention

    def _leading(self, sequence: Sequence, start: int) -> Reach:
        refs: list[PageRef] = []
        places: list[Where] = []
        limit = (sequence.length - 1) // PAGE_TOKENS
        for first in range(start, limit, _LOOK_AHEAD):
            ahead = [self.ref(sequence, i) for i in range(first, min(limit, first + _LOOK_AHEAD))]
            found = self._below.lookup([ref.id for ref in ahead], sequence.tenant)
            refs += ahead[: found.pages]
            places += found.places
            if found.pages < len(ahead):
                break
        end = start + len(refs)
        reach = Reach(refs, places, range(start, end), end * PAGE_TOKENS, start * PAGE_TOKENS)
        return self._with_tail(sequence, reach)

    def _window(self, sequence: Sequence, policy: ResumePolicy, device_only: bool) -> Reach:
        """A page may go from the tiers at any time: if one does in between, the device alone is looked at."""
        pages, limit = sequence.pages, (sequence.length - 1) // PAGE_TOKENS
        there = self._on_device(sequence) if device_only else self._anywhere(sequence, limit)
        needed = policy.pages_for(policy.resume_at(limit, there))
        lacking = [i for i in needed if self._book.number_of(pages.id_at(i, sequence.all_ids)) is None]
        refs = [self.ref(sequence, i) for i in lacking]
        places = self._below.lookup([ref.id for ref in refs], sequence.tenant).places if refs else []
        if len(places) < len(refs):
            return self._window(sequence, policy, device_only=True)
        device = (len(needed) - len(lacking)) * PAGE_TOKENS
        reach = Reach(refs, list(places), lacking, needed.stop * PAGE_TOKENS, device)
        return reach if device_only else self._with_tail(sequence, reach)

    def _with_tail(self, sequence: Sequence, reach: Reach) -> Reach:
        """With the partly filled page of a preempted sequence, if all before it is there."""
        tail = self.tail(sequence, sequence.parked_tokens)
        if tail is None or reach.tokens != sequence.parked_tokens // PAGE_TOKENS * PAGE_TOKENS:
            return reach
        found = self._below.lookup([tail.id], sequence.tenant)
        if not found.pages:
            return reach
        at = [*reach.at, reach.tokens // PAGE_TOKENS]
        refs, places = [*reach.refs, tail], [*reach.places, *found.places]
        return Reach(refs, places, at, sequence.parked_tokens, reach.device)

    def _on_device(self, sequence: Sequence) -> Callable[[int], bool]:
        pages = sequence.pages
        return lambda i: self._book.number_of(pages.id_at(i, sequence.all_ids)) is not None

    def _anywhere(self, sequence: Sequence, limit: int) -> Callable[[int], bool]:
        """Whether page i, below `limit`, is in some tier; asked for by the block, and remembered."""
        known: dict[int, bool] = {}
        on_device = self._on_device(sequence)

        def there(i: int) -> bool:
            if i not in known:
                block = range(i // _LOOK_AHEAD * _LOOK_AHEAD, min(limit, (i // _LOOK_AHEAD + 1) * _LOOK_AHEAD))
                ids = [sequence.pages.id_at(page, sequence.all_ids) for page in block]
                missing = {block[at] for at in self._below.missing(ids, sequence.tenant)}
                known.update((page, page not in missing or on_device(page)) for page in block)
            return known[i]

        return there
