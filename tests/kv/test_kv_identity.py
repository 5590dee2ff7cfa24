"""Page ids: the same content in the same place has the same id, and nothing else has."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import forebay
from forebay.kv import PAGE_TOKENS, SequencePages, page_id, page_root, pages_for


def test_page_size_is_that_of_the_kernels() -> None:
    """Read, not imported: the kernels bring torch with them."""
    interface = Path(forebay.__file__).parent / "kernels" / "interface.py"
    assert f"\nPAGE_TOKENS = {PAGE_TOKENS}\n" in interface.read_text()


def test_ids_are_stable_over_versions() -> None:
    """Pages outlive the process (disk, other workers), so the bytes that are hashed must not drift."""
    root = page_root("abc", "tenant")
    assert root.hex() == "a3a1be733f48a612d6541df171a88812aebbf2a1fffe2a37398c9908e60c58ab"
    assert page_id(root, range(16)).hex() == "a465e355be6067d3b1ba74e3b8d057d5734e1e132c498e290b1d59324fd01faf"


@given(st.text(max_size=5), st.text(max_size=5), st.text(max_size=5), st.text(max_size=5))
def test_roots_collide_only_when_both_parts_are_equal(a: str, b: str, c: str, d: str) -> None:
    assert (page_root(a, b) == page_root(c, d)) == ((a, b) == (c, d))


def test_an_id_depends_on_parent_tokens_and_order() -> None:
    root, other = page_root("m", "a"), page_root("m", "b")
    ids = {page_id(root, [1, 2]), page_id(root, [2, 1]), page_id(other, [1, 2]), page_id(page_id(root, [1, 2]), [1, 2])}
    assert len(ids) == 4


def test_a_sequence_hashes_each_page_once_and_in_a_chain() -> None:
    pages = SequencePages(page_root("m", "a"))
    tokens = list(range(40))
    second = pages.id_at(1, tokens)
    assert second == page_id(page_id(pages.root, tokens[:16]), tokens[16:32])
    assert pages.id_at(1, []) == second, "a page that is hashed needs no tokens any more"


def test_pages_for() -> None:
    assert [pages_for(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]
