"""When the comparison measures what: order of turns, rows within a budget, clients of a turn, time left."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from forebay.bench.compare.planning import clients_of_turn, order_of_turns, rows_to_measure, seconds_left
from forebay.bench.compare.rows import Load, choose_rows
from forebay.bench.compare.turns import Turn

ROWS = choose_rows("prefill")


@given(st.lists(st.sampled_from("abcd"), min_size=1, unique=True), st.integers(1, 9))
def test_every_side_has_one_turn_a_round_and_each_is_first_in_turn(sides: list[str], turns: int) -> None:
    order = list(order_of_turns(sides, turns))
    assert [number for number, _ in order] == [number for number in range(turns) for _ in sides]
    assert Counter(order) == Counter((number, side) for number in range(turns) for side in sides)
    assert [order[number * len(sides)][1] for number in range(turns)] == [sides[n % len(sides)] for n in range(turns)]


@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=12), st.floats(0.1, 200))
def test_a_row_is_measured_once_and_then_within_its_budget(seconds: list[float], budget_s: float) -> None:
    taken: list[Turn] = []
    for cost in seconds:
        rows = [row.name for row in rows_to_measure(ROWS[:1], taken, budget_s)]
        spent = [turn.seconds["prefill-512"] for turn in taken if turn.seconds]
        assert bool(rows) == (not spent or sum(spent) + spent[-1] <= budget_s)
        taken.append(Turn({"prefill-512": 1.0}, seconds={"prefill-512": cost}) if rows else Turn())
    assert taken[0].seconds


def test_without_a_budget_all_but_failed_rows_are_measured() -> None:
    costly = [Turn({"prefill-512": 1.0}, {"prefill-2048": "broke"}, seconds={"prefill-512": 1e9})]
    assert rows_to_measure(ROWS, [], 0.1) == list(ROWS)
    assert rows_to_measure(ROWS, costly, None) == list(ROWS[:1])
    assert rows_to_measure(ROWS, costly, 1.5e9) == []


def test_few_clients_ask_in_the_first_turn_only() -> None:
    load = Load(clients=(1, 4, 16))
    assert [clients_of_turn(load, number) for number in range(3)] == [(1, 4, 16), (16,), (16,)]


def test_time_left_is_known_once_every_side_had_a_turn() -> None:
    steps = list(order_of_turns(["a", "b"], 2))
    assert seconds_left(steps[1:], {"a": [5.0], "b": []}) is None
    assert seconds_left(steps[2:], {"a": [5.0], "b": [9.0, 7.0]}) == 12.0
    assert seconds_left([], {}) == 0.0
