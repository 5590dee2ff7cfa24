"""Whether everyone who runs can still come to an end with nothing lost: the banker's algorithm over device pages, with
the room below, and what each tenant may have of it, for those who step aside. It moves nobody, and chooses no victim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from forebay.core.request import Priority
from forebay.kv import PAGE_TOKENS, pages_for
from forebay.kv.identity import PUBLIC
from forebay.kv.moves import Below
from forebay.scheduling.room import Burden, Room
from forebay.scheduling.sequence import Sequence
from forebay.scheduling.state import State
from forebay.scheduling.tiering import public_held


@dataclass(slots=True)
class _Claim:
    numbers: list[int]
    """Device pages held."""
    more: int
    """Pages that it is about to get besides."""
    most: int
    """Pages that it may come to hold."""
    kept: bool
    """Whether its pages take room below while it steps aside."""
    tenant: str
    public: int
    """How many of the pages held are charged to nobody."""
    at_once: int | None = None
    """How many of its own pages can be kept in one go; None for any number."""
    below: Burden = field(default_factory=dict)
    """The room that they take there now."""

    @property
    def need(self) -> int:
        return self.most - len(self.numbers) - self.more


def may_grow(state: State, sequence: Sequence, pages: int) -> bool:
    """Whether a running sequence can be given `pages` pages that are available, and all can still end.

    Where that is not so anyway (the room below has become less), whoever finds a page may have it.
    """
    if _enough_below(state, sequence, pages):
        return True
    return _safe(state, {sequence: (pages, [])}, ()) or not _safe(state, {}, ())


def may_begin(state: State, sequence: Sequence, gone: Collection[Sequence] = ()) -> bool:
    """Whether a waiting sequence can be given pages for all its tokens once those in `gone` are put back.

    With nobody else running there is nobody to be careful of.
    """
    if len(state.running) == len(gone):
        return True
    held = state.book.held_prefix(sequence.pages, sequence.all_ids, state.point(sequence))
    pages = state.book.most_pages(sequence.length) - len(held)
    return _enough_below(state, sequence, pages, held) or _safe(state, {sequence: (pages, held)}, gone)


def _enough_below(state: State, asking: Sequence, pages: int, found: Seq[int] = ()) -> bool:
    """Whether all pages in use and `pages` more fit below, those of each tenant within its quota as well: then anyone
    can step aside. The usual case. `found` are pages on the device that the one who asks is about to share."""
    if state.tiers is None:
        return True
    below = state.tiers.below
    if state.book.used + pages > below.capacity():
        return False
    tenants = {asking.tenant, *(running.tenant for running in state.running)}
    limits = {tenant: most for tenant in tenants if (most := below.capacity_of(tenant)) is not None}
    in_use = {other: len(other.pages.held) for other in state.running if other.tenant in limits}
    if asking.tenant in limits:
        in_use[asking] = in_use.get(asking, 0) + pages + len(found)
    return _within(below, limits, in_use)


def _within(below: Below, limits: Mapping[str, int], in_use: Mapping[Sequence, int]) -> bool:
    """Whether these sequences' pages fit below by the limits of their tenants, each in one go and all together. A page
    that two of them share counts twice."""
    wanted: Counter[str] = Counter()
    for sequence, pages in in_use.items():
        wanted[sequence.tenant] += pages
        at_once = below.at_once(sequence.tenant)
        if at_once is not None and pages > at_once:
            return False
    return all(wanted[tenant] <= most for tenant, most in limits.items())


def _safe(state: State, asking: dict[Sequence, tuple[int, list[int]]], gone: Collection[Sequence]) -> bool:
    """Whether all can end if each in `asking` gets pages (so many new ones, and these) and those in `gone` step aside.

    O(pages in use), and only asked when the room below is less than that.
    """
    tiers = state.tiers
    room = Room(0, lambda _: None) if tiers is None else tiers.capacity()
    claims = {each: _claim(state, each, *asking.get(each, (0, []))) for each in (*state.running, *asking)}
    bank = _Bank(state.book.available - sum(pages for pages, _ in asking.values()), room, claims.values())
    for sequence in gone:
        bank.set_aside(claims.pop(sequence))
    # Aging changes ranks from step to step; arrival and what was asked for do not.
    order = sorted(claims, key=lambda sequence: (sequence.priority, sequence.place))
    return bank.all_can_end([claims[sequence] for sequence in order])


def _claim(state: State, sequence: Sequence, more: int, numbers: list[int]) -> _Claim:
    tokens = min(len(sequence.prompt_ids) + sequence.sampling.max_tokens, state.config.max_model_len)
    shared = len(sequence.prompt_ids) // PAGE_TOKENS
    most = shared + sequence.choices * (pages_for(tokens) - shared)
    most = min(most, sequence.choices * state.book.most_pages(tokens))
    held = [*sequence.pages.held, *numbers]
    most = max(min(most + _to_split(state, sequence), state.book.total), len(held) + more)
    public = public_held(sequence)
    kept = sequence.priority is not Priority.SPECULATIVE_DRAFT
    at_once = None if state.tiers is None else state.tiers.below.at_once(sequence.tenant)
    return _Claim(held, more, most, kept, sequence.tenant, public, at_once)


def _to_split(state: State, sequence: Sequence) -> int:
    """Pages held that it has to copy before it writes to them: the partly filled one that choices begin with."""
    pages, book = sequence.pages, state.book
    return book.short(pages, sequence.computed, len(pages.numbers) * PAGE_TOKENS) + book.available


class _Bank:
    """Free pages and room below, as they would be after some have ended and others stepped aside."""

    def __init__(self, free: int, room: Room, claims: Iterable[_Claim]) -> None:
        self.free = free
        self.room = room
        self._holders: Counter[int] = Counter()
        for claim in claims:
            self._holders.update(claim.numbers)

    def all_can_end(self, claims: list[_Claim]) -> bool:
        """Whether an order is found in which all end; first come, first asked."""
        while claims:
            ending = next((claim for claim in claims if claim.need <= self.free), None)
            if ending is None:
                ending = self._with_help(claims)
            if ending is None:
                return False
            claims = [claim for claim in claims if claim is not ending]
            self._give_back(ending)
            self.room.give(ending.below)
        return True

    def set_aside(self, claim: _Claim) -> None:
        """Someone steps aside: it holds nothing any more, and will want all of it again."""
        claim.below = _cost(claim)
        self.room.take(claim.below)
        self._give_back(claim)
        claim.numbers, claim.more = [], 0

    def _with_help(self, claims: list[_Claim]) -> _Claim | None:
        """Who can end if others step aside, last ones first: the first, or else the one that lacks least."""
        for ending in (claims[0], min(claims, key=lambda claim: claim.need)):
            helpers = self._helpers(ending, [claim for claim in reversed(claims) if claim is not ending])
            if helpers is not None:
                for helper in helpers:
                    self.set_aside(helper)
                return ending
        return None

    def _helpers(self, ending: _Claim, others: list[_Claim]) -> list[_Claim] | None:
        short, room, seen, helpers = ending.need - self.free, self.room.copy(), Counter[int](), list[_Claim]()
        for other in others:
            if short <= 0:
                break
            cost = _cost(other)
            if (other.numbers or other.more) and room.fits(cost) and _goes_at_once(other, cost):
                room.take(cost)
                seen.update(other.numbers)
                short -= other.more + sum(seen[number] == self._holders[number] for number in other.numbers)
                helpers.append(other)
        return helpers if short <= 0 else None

    def _give_back(self, claim: _Claim) -> None:
        self.free += claim.more
        for number in claim.numbers:
            self._holders[number] -= 1
            self.free += not self._holders[number]


def _cost(claim: _Claim) -> Burden:
    if not claim.kept:
        return {}
    public = min(claim.public, len(claim.numbers))
    return {PUBLIC: public, claim.tenant: len(claim.numbers) - public + claim.more}


def _goes_at_once(claim: _Claim, cost: Burden) -> bool:
    return claim.at_once is None or cost.get(claim.tenant, 0) <= claim.at_once
