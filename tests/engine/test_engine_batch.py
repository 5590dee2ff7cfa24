"""What kernels are told about a step's rows: tokens, positions, slots and page tables."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.request import GenerateRequest, SamplingParams
from forebay.engine.batch import build_batch
from forebay.kernels import PAGE_TOKENS
from forebay.kernels.checks import prepare_batch
from forebay.kv.sequence_pages import NO_PAGE, SequencePages
from forebay.scheduling import Row
from forebay.scheduling.sequence import Sequence


def make_row(number: int, start: int, tokens: int, first_page: int) -> Row:
    """A row whose tokens and pages tell which sequence they belong to; pages before `first_page` are given up."""
    ids = [number * 1000 + i for i in range(start + tokens)]
    held = -(-len(ids) // PAGE_TOKENS) + 1  # one more than needed, as after growing ahead
    numbers = [NO_PAGE if i < first_page else number * 100 + i for i in range(held)]
    pages = SequencePages(root=b"", numbers=numbers, start=first_page)
    request = GenerateRequest(id=str(number), prompt_ids=ids, sampling=SamplingParams(max_tokens=1))
    return Row(Sequence(request, 0.0, number, pages, all_ids=ids), start, tokens, samples=1, decode=tokens == 1)


starts = st.integers(0, 200)
decode_rows = st.lists(st.tuples(starts, st.just(1), st.integers(0, 12)), min_size=1, max_size=6)
any_rows = st.lists(st.tuples(starts, st.integers(1, 50), st.integers(0, 12)), min_size=1, max_size=6)


@given(st.one_of(decode_rows, any_rows))
def test_every_token_has_its_place(drawn: list[tuple[int, int, int]]) -> None:
    rows = [
        make_row(number, start, tokens, min(given_up, start // PAGE_TOKENS))
        for number, (start, tokens, given_up) in enumerate(drawn)
    ]
    ids, batch = build_batch(rows)
    at = 0
    for index, row in enumerate(rows):
        assert batch.row_starts[index] == at
        assert batch.context[index] == row.start + row.tokens
        for position in range(row.start, row.start + row.tokens):
            assert ids[at] == index * 1000 + position
            assert batch.positions[at] == position
            assert batch.slots[at] == (index * 100 + position // PAGE_TOKENS) * PAGE_TOKENS + position % PAGE_TOKENS
            at += 1
        line = batch.page_table[index].tolist()
        needed = -(-(row.start + row.tokens) // PAGE_TOKENS)
        first = row.sequence.pages.start
        assert line[:needed] == [index * 100 + max(i, first) for i in range(needed)]
        assert not any(line[needed:])
    assert batch.row_starts[-1] == at == len(ids)
    assert prepare_batch(batch).tokens == at


def test_the_pages_of_a_sequence_are_left_as_they_are() -> None:
    row = make_row(3, 40, 1, 2)
    before = list(row.sequence.pages.numbers)
    build_batch([row])
    assert row.sequence.pages.numbers == before
