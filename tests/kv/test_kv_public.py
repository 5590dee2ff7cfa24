"""Public prefixes: which pages have one id for all tenants, and that what follows is as separate as ever."""

from __future__ import annotations

import pytest

from forebay.kv import KvBook, page_root
from forebay.kv.identity import PUBLIC
from forebay.kv.public import PublicPrefixes
from forebay.kv.quota import Quotas

SYSTEM = list(range(100, 140))
ROOT = page_root("model", PUBLIC)


@pytest.fixture
def prefixes() -> PublicPrefixes:
    made = PublicPrefixes(ROOT)
    assert made.mark(SYSTEM) == 2, "the last 8 tokens fill no page"
    return made


@pytest.mark.parametrize(
    ("prompt", "pages"),
    [
        (SYSTEM, 2),
        ([*SYSTEM, 1, 2, 3], 2),
        (SYSTEM[:31], 1),
        (SYSTEM[:15], 0),
        ([*SYSTEM[:20], *range(50)], 1),
        ([0, *SYSTEM], 0),
        ([], 0),
    ],
)
def test_only_full_pages_of_the_beginning_are_public(prefixes: PublicPrefixes, prompt: list[int], pages: int) -> None:
    assert prefixes.pages_of(prompt) == pages


def test_marking_more_leaves_what_was_marked(prefixes: PublicPrefixes) -> None:
    assert prefixes.mark([*SYSTEM[:16], *range(32)]) == 3
    assert prefixes.pages_of(SYSTEM) == 2
    assert prefixes.pages_of([*SYSTEM[:16], *range(32), 7]) == 3


def test_tenants_share_public_pages_and_nothing_else(prefixes: PublicPrefixes) -> None:
    book = KvBook(20)
    prompt = [*SYSTEM[:32], *range(48)]
    opened = [
        book.open(page_root("model", tenant), public=prefixes.pages_of(prompt), public_root=prefixes.root)
        for tenant in ("a", "b")
    ]
    plain = book.open(page_root("model", "a"))
    for pages in (*opened, plain):
        pages.id_at(4, prompt)
    first, second = opened
    assert first.ids[:2] == second.ids[:2]
    assert not set(first.ids[2:]) & set(second.ids[2:])
    assert not set(first.ids) & set(plain.ids), "what is not public has other ids, the same tokens or not"
    assert (first.parent(0), first.parent(2)) == (ROOT, first.ids[1])

    assert book.match_prefix(first, prompt) == 0
    assert book.grow(first, 0, 80) == []
    book.commit(first, prompt, 80)
    assert book.match_prefix(second, prompt) == 32
    assert second.numbers == first.numbers[:2]
    twin = book.fork(first, 80)
    assert (twin.public, twin.public_root, twin.seed(2)) == (2, ROOT, first.seed(2))
    for pages in (first, second, twin):
        book.release(pages)
    assert not book.check()


def test_no_quota_holds_for_public_pages() -> None:
    quotas = Quotas(5, {"a": 7})
    assert [quotas.limit(tenant) for tenant in ("a", "b", PUBLIC)] == [7, 5, None]
