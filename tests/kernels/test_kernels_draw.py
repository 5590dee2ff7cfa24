"""Drawing tokens: the compiled code against the one in torch, over large vocabularies and awkward rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.kernels import Pick
from forebay.kernels.draw import draw
from forebay.kernels.native import NativeKernels

POINTS = st.floats(0.0, 1.0, exclude_max=True)
VALUES = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=40)


def agrees(native: NativeKernels, logits: torch.Tensor, pick: Pick) -> bool:
    """Whether both draw the same; at the border of two tokens either may be drawn, for sums round. So do exponentials:
    tokens that are almost, but not equally, likely may change places in the order of likelihood that filters bring.
    """
    token = native.draw(logits, [pick])[0]
    nearby = (max(pick.point - 1e-5, 0.0), pick.point, min(pick.point + 1e-5, 1 - 1e-9))
    picks = [Pick(pick.row, pick.temperature, pick.top_k, pick.top_p, pick.min_p, point) for point in nearby]
    drawn = draw(logits, picks)
    if token in drawn or not pick.filters or not pick.temperature:
        return token in drawn
    apart = (logits[pick.row, drawn] - logits[pick.row, token]).abs() / pick.temperature
    return bool(((apart > 0) & (apart < 1e-5)).any())


@settings(deadline=None, max_examples=120)
@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([1, 7, 8, 255, 256, 257, 5000]),
    spread=st.sampled_from([0.01, 1.0, 6.0, 40.0]),
    forbidden=st.booleans(),
    point=POINTS,
    temperature=st.sampled_from([0.0, 0.05, 0.8, 2.0]),
    top_k=st.sampled_from([0, 1, 40, 5000, 10**6]),
    top_p=st.sampled_from([1e-6, 0.3, 0.95, 0.999999, 1.0]),
    min_p=st.sampled_from([0.0, 0.02, 1.0]),
)
def test_native_draws_what_torch_draws(
    native: NativeKernels,
    seed: int,
    size: int,
    spread: float,
    forbidden: bool,
    point: float,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, size, generator=generator) * spread
    if forbidden and size > 1:
        logits[:, torch.randperm(size, generator=generator)[: size // 2]] = -torch.inf
    assert agrees(native, logits, Pick(1, temperature, top_k, top_p, min_p, point))


@settings(deadline=None, max_examples=60)
@given(
    point=POINTS, top_k=st.sampled_from([0, 3]), values=st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=40)
)
def test_forbidden_tokens_are_never_drawn(native: NativeKernels, point: float, top_k: int, values: list[float]) -> None:
    logits = torch.full((1, 2 * len(values)), -torch.inf)
    logits[0, ::2] = torch.tensor(values)
    token = native.draw(logits, [Pick(0, 1.0, top_k, point=point)])[0]
    assert token % 2 == 0


def test_equal_logits_give_the_first(native: NativeKernels) -> None:
    logits = torch.zeros(2, 1000)
    logits[1, [400, 17, 999]] = 5.0
    assert native.draw(logits, [Pick(0), Pick(1), Pick(1, 1.0, top_k=1, point=0.9)]) == [0, 17, 17]


def test_picks_may_share_a_row_and_leave_the_logits(native: NativeKernels) -> None:
    logits = torch.randn(4, 3000, generator=torch.Generator().manual_seed(1))
    before = logits.clone()
    picks = [Pick(3, 1.0, point=(i * 0.618) % 1) for i in range(50)]
    assert native.draw(logits, picks) == [native.draw(logits, [pick])[0] for pick in picks]
    assert torch.equal(logits, before)


@pytest.mark.parametrize(
    "pick",
    [Pick(2), Pick(-1), Pick(0, 1.0, top_p=0.0), Pick(0, 1.0, min_p=1.5), Pick(0, 1.0, point=1.0), Pick(0, 1.0, -1)],
)
def test_numbers_out_of_range_are_refused(native: NativeKernels, pick: Pick) -> None:
    with pytest.raises(ValueError, match=r"row|out of range"):
        native.draw(torch.zeros(2, 10), [pick])
