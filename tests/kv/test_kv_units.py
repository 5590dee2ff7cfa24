"""Resume points of sliding windows: which are kept, which pages they take, and that resuming reads no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.kv.identity import PAGE_TOKENS
from forebay.kv.units import CommonPrefixes, ResumePolicy

ROOT = b"root"


def ids(text: str) -> list[bytes]:
    """Page ids of a prompt whose pages are letters: each names all that comes before it."""
    return [text[: i + 1].encode() for i in range(len(text))]


def test_points_by_hand() -> None:
    policy = ResumePolicy(window=64, interval=100)
    assert policy.points(prompt=200, total=330, common=[50]) == [48, 96, 192, 288, 320]
    assert policy.points(prompt=10, total=15) == []
    assert ResumePolicy(64, 4096).points(prompt=64, total=64) == [48, 64]


def test_pages_of_a_point_are_those_that_its_first_token_sees() -> None:
    policy = ResumePolicy(window=64)
    assert list(policy.pages_for(160)) == [6, 7, 8, 9], "token 160 sees tokens 97 to 160"
    assert list(policy.pages_for(32)) == [0, 1]
    assert list(ResumePolicy(window=65).pages_for(160)) == [6, 7, 8, 9]
    assert list(ResumePolicy(window=66).pages_for(160)) == [5, 6, 7, 8, 9]
    assert policy.keep([160, 176]) == [6, 7, 8, 9, 10]


@pytest.mark.parametrize(("window", "interval"), [(15, 4096), (64, 0)])
def test_what_is_less_than_a_page_is_refused(window: int, interval: int) -> None:
    with pytest.raises(ValueError, match="at least 16"):
        ResumePolicy(window, interval)


@given(
    window=st.integers(16, 200),
    interval=st.integers(16, 300),
    prompt=st.integers(0, 700),
    answer=st.integers(0, 300),
    common=st.lists(st.integers(0, 900), max_size=4),
)
def test_every_point_that_is_kept_can_be_resumed(
    window: int, interval: int, prompt: int, answer: int, common: list[int]
) -> None:
    policy, total = ResumePolicy(window, interval), prompt + answer
    points = policy.points(prompt, total, common)
    assert points == sorted(set(points))
    assert all(point % PAGE_TOKENS == 0 and 0 < point <= total for point in points)
    for limit in points:
        kept = set(policy.keep(points))
        assert policy.resume_at(limit // PAGE_TOKENS, kept.__contains__) == limit
        kept.discard(limit // PAGE_TOKENS - 1)
        assert policy.resume_at(limit // PAGE_TOKENS, kept.__contains__) < limit


@given(window=st.integers(16, 200), pages=st.sets(st.integers(0, 40)))
def test_resuming_reads_only_pages_that_are_there(window: int, pages: set[int]) -> None:
    policy = ResumePolicy(window)
    best = policy.resume_at(41, pages.__contains__)
    assert pages.issuperset(policy.pages_for(best))
    for page in range(best // PAGE_TOKENS, 41):
        assert not pages.issuperset(policy.pages_for((page + 1) * PAGE_TOKENS))


def test_common_prefixes_are_found_where_prompts_part() -> None:
    seen = CommonPrefixes()
    assert seen.see(ROOT, ids("abcd")) == []
    assert seen.see(ROOT, ids("abcd")) == [], "the same prompt again parts nowhere"
    assert seen.see(ROOT, ids("abxy")) == [32]
    assert seen.see(ROOT, ids("abcd")) == [32]
    assert seen.see(ROOT, ids("axyz")) == [16]
    assert seen.see(ROOT, ids("abcde")) == [16, 32]
    assert seen.see(ROOT, ids("zz")) == [], "the root is no point: nothing lies before it"


def test_common_prefixes_forget_what_was_seen_longest_ago() -> None:
    seen = CommonPrefixes(bound=3)
    seen.see(ROOT, ids("ab"))
    seen.see(ROOT, ids("pqrs"))
    assert seen.see(ROOT, ids("abc")) == []
    assert len(seen._followers) == 3
