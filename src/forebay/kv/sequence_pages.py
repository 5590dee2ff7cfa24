"""One sequence's pages: their numbers in order and the ids of their content. `KvBook` alone changes the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from forebay.kv.identity import PAGE_TOKENS, own_root, page_id

NO_PAGE = -1
"""In place of a page's number: the sequence does not hold the page."""


def pages_for(tokens: int) -> int:
    """How many pages hold this many tokens."""
    return -(-tokens // PAGE_TOKENS)


@dataclass(eq=False, slots=True)
class SequencePages:
    """The pages of one sequence; compared by identity, so that the book can count who holds what."""

    root: bytes
    """`page_root` of the model and the tenant."""
    reuse: bool = True
    """False: the sequence takes no page from the prefix cache (it still gives its own to it)."""
    public: int = 0
    """How many leading pages are public (see `public.py`)."""
    public_root: bytes = b""
    """What those are rooted in; empty when there are none."""
    numbers: list[int] = field(default_factory=list)
    """Page numbers in order: token i lies in page `numbers[i // 16]`. Empty while the sequence holds nothing. Pages
    before `start` are `NO_PAGE`; so are pages between being matched and `KvBook.grow`, which fills them in."""
    start: int = 0
    """The first page held; above 0 only where all attention has a window (`WindowBook`)."""
    points: list[int] = field(default_factory=list)
    """Token positions ahead, in order, whose pages are to be kept once they are reached (`WindowBook`)."""
    expected: bool = False
    """Whether `points` was asked for."""
    ids: list[bytes] = field(default_factory=list)
    """Ids of the leading full pages hashed so far; kept when the pages are released, since tokens never change."""
    registered: int = 0
    """The leading pages that are in the prefix index, by the numbers held here (those before `start` count)."""
    hits: int = 0
    """The leading ids that the index had at the last look: where the next look starts."""

    @property
    def held(self) -> list[int]:
        """The pages that it holds, first ones first."""
        return [number for number in islice(self.numbers, self.start, None) if number != NO_PAGE]

    def id_at(self, index: int, tokens: Sequence[int]) -> bytes:
        """The id of full page `index`. `tokens` are all of the sequence's ids; each page is hashed once."""
        ids = self.ids
        while len(ids) <= index:
            start = len(ids) * PAGE_TOKENS
            ids.append(page_id(self.seed(len(ids)), tokens[start : start + PAGE_TOKENS]))
        return ids[index]

    def parent(self, index: int) -> bytes:
        """The id of the page before page `index`, which must be hashed, or the root that the first one hangs on."""
        if index:
            return self.ids[index - 1]
        return self.public_root if self.public else self.root

    def seed(self, index: int) -> bytes:
        """What the id of page `index` is hashed onto: its parent, or the tenant's root again behind a public prefix."""
        parent = self.parent(index)
        return own_root(self.root, parent) if index and index == self.public else parent
