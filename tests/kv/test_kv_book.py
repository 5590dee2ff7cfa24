"""The book's rules, one by one. Any order of operations: see `test_kv_book_machine.py`."""

from __future__ import annotations

from collections import Counter

import pytest

from forebay.kv import KvBook, SequencePages, page_root

ROOT = page_root("model", "alice")
PROMPT = list(range(100, 140))


def computed(book: KvBook, tokens: list[int], root: bytes = ROOT) -> SequencePages:
    """A sequence whose tokens are all computed."""
    pages = book.open(root)
    found = book.match_prefix(pages, tokens)
    assert book.grow(pages, found, len(tokens)) == []
    book.commit(pages, tokens, len(tokens))
    return pages


def test_pages_shared_by_two_sequences_are_stored_once() -> None:
    book = KvBook(10)
    first = computed(book, PROMPT)
    second = book.open(ROOT)
    assert book.cached_tokens(second, PROMPT) == 32
    assert book.match_prefix(second, PROMPT) == 32
    assert second.numbers == first.numbers[:2]
    assert book.grow(second, 32, 40) == []
    assert book.used == 4
    assert book.check() == []


def test_a_match_leaves_a_token_and_never_writes_to_a_shared_page() -> None:
    book = KvBook(10)
    first = computed(book, PROMPT[:32])
    second = book.open(ROOT)
    assert book.match_prefix(second, PROMPT[:32]) == 16
    assert book.grow(second, 16, 32) == []
    assert second.numbers[1] != first.numbers[1]
    book.commit(second, PROMPT[:32], 32)
    assert second.numbers == first.numbers, "the duplicate is given up once it is known to be one"
    assert (book.used, book.free) == (2, 8)
    assert book.check() == []


def test_a_prompt_of_one_cached_page_matches_nothing() -> None:
    book = KvBook(4)
    book.release(computed(book, PROMPT[:16]))
    assert book.match_prefix(book.open(ROOT), PROMPT[:16]) == 0


def test_tenants_never_share() -> None:
    book = KvBook(10)
    computed(book, PROMPT)
    stranger = book.open(page_root("model", "bob"))
    assert book.match_prefix(stranger, PROMPT) == 0


def test_only_computed_pages_are_registered() -> None:
    book = KvBook(10)
    pages = book.open(ROOT)
    book.grow(pages, 0, 40)
    book.commit(pages, PROMPT, 31)
    assert book.cached_tokens(book.open(ROOT), PROMPT) == 16
    book.release(pages)
    assert (book.free, book.cached, book.used) == (9, 1, 0)


def test_without_prefix_cache_nothing_stays() -> None:
    book = KvBook(10, prefix_cache=False)
    pages = computed(book, PROMPT)
    assert book.match_prefix(book.open(ROOT), PROMPT) == 0
    assert book.missing_page(pages, PROMPT) is None
    assert book.next_page(pages, PROMPT, 40) is None
    book.release(pages)
    assert book.free == 10


def test_reuse_false_takes_nothing_but_gives() -> None:
    book = KvBook(10)
    whole = book.open(ROOT, reuse=False)
    book.release(computed(book, PROMPT))
    assert book.match_prefix(whole, PROMPT) == 0
    assert book.missing_page(whole, PROMPT) is None
    book.grow(whole, 0, 40)
    book.commit(whole, PROMPT, 40)
    assert book.check() == []
    assert (book.used, book.cached) == (3, 0)


def test_fork_shares_the_tail_until_someone_writes() -> None:
    book = KvBook(10)
    first = computed(book, PROMPT)
    second = book.fork(first, 40)
    third = book.fork(first, 40)
    assert book.used == 3
    tail = first.numbers[2]
    assert book.grow(second, 40, 41) == [(tail, second.numbers[2])]
    assert book.grow(first, 40, 41) == [(tail, first.numbers[2])]
    assert book.grow(third, 40, 41) == [], "the last one has the page for itself"
    assert third.numbers[2] == tail
    book.settle()
    assert book.used == 5
    assert book.check() == []


def test_a_planned_copy_keeps_its_source() -> None:
    book = KvBook(6, prefix_cache=False)
    first = computed(book, PROMPT)
    second = book.fork(first, 40)
    [(source, _)] = book.grow(second, 40, 41) or []
    book.release(first)
    assert book.available == 2, "the source is neither free nor held"
    other = book.open(ROOT)
    book.grow(other, 0, 32)
    assert source not in other.numbers
    assert book.check() == []
    book.settle()
    assert book.available == 1
    assert book.check() == []


def test_fork_wants_committed_pages() -> None:
    book = KvBook(10)
    pages = book.open(ROOT)
    book.grow(pages, 0, 40)
    with pytest.raises(ValueError, match="0 pages are committed"):
        book.fork(pages, 40)


def test_growing_is_all_or_nothing() -> None:
    book = KvBook(3)
    pages = book.open(ROOT)
    assert book.grow(pages, 0, 64) is None
    assert (pages.numbers, book.free) == ([], 3)
    assert book.missing(pages, 64) == 1
    assert book.grow(pages, 0, 48) == []


def test_registered_or_missing_pages_are_not_writable() -> None:
    book = KvBook(10)
    pages = computed(book, PROMPT)
    with pytest.raises(ValueError, match="token 31 can't be written"):
        book.grow(pages, 31, 41)
    with pytest.raises(ValueError, match="token 64 can't be written"):
        book.grow(pages, 64, 65)
    with pytest.raises(ValueError, match="before the sequence holds pages"):
        book.match_prefix(pages, PROMPT)


def test_eviction_takes_the_oldest_and_leaves_before_parents() -> None:
    book = KvBook(6)
    book.release(computed(book, PROMPT[:33]))
    book.release(computed(book, [7] * 33))
    assert (book.cached, book.free) == (4, 2)
    new = book.open(ROOT)
    assert book.grow(new, 0, 48) == []
    assert book.evictions == 1
    assert book.cached_tokens(book.open(ROOT), PROMPT) == 16, "the second page went, its parent stayed"
    assert book.cached_tokens(book.open(ROOT), [7] * 33) == 32
    assert book.check() == []


def test_fits_counts_cached_hits_that_would_be_taken() -> None:
    book = KvBook(4)
    book.release(computed(book, PROMPT[:33]))
    pages = book.open(ROOT)
    assert book.fits(pages, PROMPT[:33] + [0] * 31)
    assert not book.fits(pages, PROMPT[:33] + [0] * 32)
    assert not book.fits(pages, PROMPT[:33] + [0] * 31, spare=1)


def test_freed_by_counts_shared_pages_once_all_holders_are_seen() -> None:
    book = KvBook(10)
    first = computed(book, PROMPT)
    second = book.fork(first, 40)
    book.grow(second, 40, 41)
    book.settle()
    seen: Counter[int] = Counter()
    assert book.freed_by(first, seen) == 1
    assert book.freed_by(second, seen) == 3


def test_freed_by_leaves_out_pages_that_a_planned_copy_reads() -> None:
    book = KvBook(10, prefix_cache=False)
    first = computed(book, PROMPT)
    second = book.fork(first, 40)
    book.grow(second, 40, 41)
    before = book.available
    seen: Counter[int] = Counter()
    expected = book.freed_by(second, seen) + book.freed_by(first, seen)
    book.release(second)
    book.release(first)
    assert book.available - before == expected == 3


def test_a_look_follows_what_the_index_gains_and_loses() -> None:
    book = KvBook(3)
    asker = book.open(ROOT)
    assert book.missing_page(asker, PROMPT) == asker.ids[0]
    pages = computed(book, PROMPT)
    assert book.next_page(book.open(ROOT), PROMPT, 40) == asker.ids[0]
    assert book.cached_tokens(asker, PROMPT) == 32
    assert book.missing_page(asker, PROMPT) is None
    book.release(pages)
    other = book.open(ROOT)
    book.grow(other, 0, 32)
    assert book.cached_tokens(asker, PROMPT) == 16


def test_check_names_what_is_wrong() -> None:
    book = KvBook(4)
    pages = computed(book, PROMPT)
    pool = book._pool
    pool.holders[pages.numbers[0]] += 1
    pool._free.append(pages.numbers[1])
    pool._free.append(pages.numbers[1])
    pool._cached[pool._free[0]] = None
    pages.numbers[2] = pages.numbers[1]
    pages.ids[0] = b"other"
    del pool.index._numbers[next(iter(pool.index._numbers))]
    found = "\n".join(book.check())
    for part in ("counts", "twice", "2 states", "free, but registered", "not registered", "leads elsewhere", "parent"):
        assert part in found, f"{part}: {found}"
    assert "are not those that are registered" in found


def test_misuse_of_the_pool_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one page"):
        KvBook(0)
    pool = KvBook(1)._pool
    number = pool.allocate()
    with pytest.raises(ValueError, match="no page is free"):
        pool.allocate()
    pool.release(number)
    with pytest.raises(ValueError, match="nobody holds it"):
        pool.release(number)
    pool.index.add(b"id", b"parent", 0)
    with pytest.raises(ValueError, match="registered already"):
        pool.index.add(b"id", b"parent", 1)


def test_clear_gives_up_what_nobody_holds() -> None:
    book = KvBook(10)
    held = computed(book, PROMPT)
    book.release(computed(book, [7] * 40))
    book.clear()
    assert (book.cached, book.used) == (0, 3)
    assert book.cached_tokens(book.open(ROOT), [7] * 40) == 0
    assert book.cached_tokens(book.open(ROOT), PROMPT) == 32
    book.release(held)
    assert book.check() == []


def test_pages_that_are_copied_are_not_given_out() -> None:
    book = KvBook(3)
    pages = computed(book, PROMPT)
    moving = pages.numbers[:2]
    book.begin_moves(moving)
    book.release(pages)
    assert (book.available, book.used) == (1, 0)
    other = book.open(ROOT)
    assert book.grow(other, 0, 32) is None
    assert book.match_prefix(other, PROMPT) == 32, "they can still be found"
    book.release(other)
    book.end_moves(moving)
    assert book.available == 3
    assert book.check() == []


def test_a_page_that_outlives_its_parent_is_not_found() -> None:
    book = KvBook(3)
    pages = computed(book, PROMPT[:33])
    child = pages.numbers[1]
    book.begin_moves([child])
    book.release(pages)
    taken = book.open(page_root("model", "bob"))
    assert book.grow(taken, 0, 32) == [], "the parent and a free page"
    assert book.check() == []
    book.end_moves([child])
    assert book.free == 1
    assert book.check() == []
