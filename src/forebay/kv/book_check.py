"""Recounts a book of pages: each page in one state, all holders counted, all ids in their places. It mends nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from forebay.kv.pages import PagePool
from forebay.kv.sequence_pages import SequencePages


def problems_of(pool: PagePool, roots: set[bytes] | None, holding: Mapping[SequencePages, Sequence[int]]) -> list[str]:
    """What is wrong, given which pages each sequence holds; empty when all is well.

    `roots` are what first pages are registered under; None where a page is of use without those before it.
    """
    found = pool.problems(Counter(number for held in holding.values() for number in held)) + pool.index.problems(roots)
    for pages, held in holding.items():
        if len(set(held)) != len(held):
            found.append("a sequence holds a page twice")
        registered = range(pages.start, pages.registered)
        wrong = [i for i in registered if pool.index.number(pages.ids[i]) != pages.numbers[i]]
        if wrong:
            found.append(f"a sequence's pages {wrong} are not those that are registered under their ids")
    return found
