"""Frames: never two contents in one, none lost, and no more of the memory touched than was in use at one time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.kv.frames import Frames

TOTAL = 6
moves = st.lists(st.tuples(st.sampled_from(["take", "hold", "drop"]), st.integers(0, TOTAL - 1)), max_size=80)


@given(moves)
def test_each_frame_is_free_or_counted(drawn: list[tuple[str, int]]) -> None:
    frames, referred, most = Frames(TOTAL), list[int](), 0
    for move, number in drawn:
        if move == "take":
            if len(set(referred)) == TOTAL:
                with pytest.raises(ValueError, match="all 6 frames"):
                    frames.take()
                continue
            taken = frames.take()
            assert taken not in referred
            referred.append(taken)
        elif number not in referred:
            with pytest.raises(ValueError, match="is free"):
                frames.hold(number) if move == "hold" else frames.drop(number)
        elif move == "hold":
            frames.hold(number)
            referred.append(number)
        else:
            frames.drop(number)
            referred.remove(number)
        most = max(most, len(set(referred)))
        assert frames.free == TOTAL - len(set(referred))
        assert frames.problems(referred) == []
        assert max(referred, default=-1) < most == len(frames.holders)


def test_a_wrong_count_is_found() -> None:
    frames = Frames(3)
    first, second = frames.take(), frames.take()
    assert frames.problems([first]) == [f"frame {second} counts 1 holders, but 0 refer to it"]
    assert frames.problems([first, second, second]) == [f"frame {second} counts 1 holders, but 2 refer to it"]


def test_no_frame_lies_outside() -> None:
    frames = Frames(2)
    for frame in (-1, 0, 2):
        with pytest.raises(ValueError, match="is free"):
            frames.hold(frame)
