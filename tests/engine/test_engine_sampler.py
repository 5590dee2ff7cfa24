"""The sampler against plain numpy; a row's token depends on nothing but its own row and counters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.request import SamplingParams
from forebay.engine.randomness import uniform
from forebay.engine.sampler import Draw, sample
from forebay.kernels import Kernels, load_kernels
from forebay.kernels.build import BuildError, built_library

VOCABULARY = 600


@pytest.fixture(scope="module", params=["torch", "native"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    if request.param == "native":
        try:
            built_library()
        except BuildError as error:
            pytest.skip(f"the native kernels can't be built here: {error}")
    return load_kernels(request.param)


def logits_of(seed: int, rows: int = 1, spread: float = 3.0) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * spread


def draw(row: int = 0, output: list[int] | None = None, choice: int = 0, **params: object) -> Draw:
    sampling = SamplingParams(max_tokens=100, **params)  # type: ignore[arg-type]
    return Draw(row, sampling, choice, [1, 2, 3], output or [])


def reference(logits: torch.Tensor, params: SamplingParams, point: float) -> int:
    """Temperature, top_k, top_p, min_p and the inverse cumulative distribution, written the long way."""
    scaled = logits.double().numpy() / params.temperature
    probabilities = np.exp(scaled - scaled.max())
    probabilities /= probabilities.sum()
    order = np.argsort(-probabilities, kind="stable")
    if params.top_k:
        order = order[: params.top_k]
    kept = probabilities[order]
    if params.top_p < 1:
        cumulative = kept.cumsum() / kept.sum()
        order = order[: int((cumulative < params.top_p).sum()) + 1]
    order = order[probabilities[order] >= params.min_p * probabilities[order[0]]]
    if not (params.top_k or params.top_p < 1 or params.min_p):
        order = np.arange(len(probabilities))
    cumulative = probabilities[order].cumsum()
    return int(order[np.searchsorted(cumulative, point * cumulative[-1], side="right")])


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    temperature=st.sampled_from([0.1, 0.7, 1.0, 1.9]),
    top_k=st.sampled_from([0, 1, 5, 300, 599, 600, 1000]),
    top_p=st.sampled_from([0.05, 0.5, 0.95, 0.9999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    spread=st.sampled_from([0.01, 1.0, 5.0]),
)
def test_filters_and_draw_equal_the_reference(
    kernels: Kernels, seed: int, temperature: float, top_k: int, top_p: float, min_p: float, spread: float
) -> None:
    logits = logits_of(seed, spread=spread)
    one = draw(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    token = sample(logits, [one], kernels)[0]
    expected = reference(logits[0], one.sampling, uniform(seed, 0, 0))
    if token != expected:  # fp32 against float64: the draw may fall on the border of two tokens
        near = [
            reference(logits[0], one.sampling, min(max(uniform(seed, 0, 0) + d, 0.0), 1 - 1e-9)) for d in (-1e-4, 1e-4)
        ]
        assert token in near


def test_greedy_takes_the_most_likely_token(kernels: Kernels) -> None:
    logits = logits_of(1, rows=3)
    assert sample(logits, [draw(i, temperature=0.0) for i in range(3)], kernels) == logits.argmax(dim=-1).tolist()


@given(seed=st.integers(0, 2**32), others=st.integers(0, 5), position=st.integers(0, 50))
@settings(deadline=None, max_examples=40)
def test_a_token_does_not_depend_on_the_batch(kernels: Kernels, seed: int, others: int, position: int) -> None:
    logits = logits_of(seed, rows=others + 1)
    mine = draw(others, output=[7] * position, seed=seed, top_p=0.9, repetition_penalty=1.2, presence_penalty=0.5)
    crowd = [draw(i, seed=seed + i, temperature=0.0 if i % 2 else 1.3, top_k=9 * i) for i in range(others)]
    alone = Draw(0, mine.sampling, 0, mine.prompt_ids, mine.output_ids)
    assert sample(logits, [*crowd, mine], kernels)[-1] == sample(logits[others:], [alone], kernels)[0]


def test_choices_of_one_request_differ_and_repeat(kernels: Kernels) -> None:
    logits = logits_of(3, spread=0.5)
    draws = [draw(0, choice=i, seed=5) for i in range(8)]
    tokens = sample(logits, draws, kernels)
    assert len(set(tokens)) > 4
    assert sample(logits, draws, kernels) == tokens


def test_the_draws_follow_the_distribution(kernels: Kernels) -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    draws = [Draw(0, SamplingParams(max_tokens=1, seed=seed), 0, [], []) for seed in range(4000)]
    share = np.bincount(sample(logits, draws, kernels), minlength=4) / 4000
    assert np.abs(share - torch.softmax(logits[0], 0).numpy()).max() < 0.03


def test_penalties_bias_and_minimum_length(kernels: Kernels) -> None:
    logits = torch.zeros(1, VOCABULARY)
    logits[0, 5], logits[0, 9] = 4.0, 3.5
    assert sample(logits, [draw(temperature=0.0, output=[5], presence_penalty=1.0)], kernels) == [9]
    assert sample(logits, [draw(temperature=0.0, output=[5, 5], frequency_penalty=0.3)], kernels) == [9]
    assert sample(logits, [draw(temperature=0.0, output=[5], frequency_penalty=0.3)], kernels) == [5]
    assert sample(logits, [draw(temperature=0.0, output=[5], repetition_penalty=1.5)], kernels) == [9]
    assert sample(logits, [draw(temperature=0.0, logit_bias={44: 10.0})], kernels) == [44]
    assert sample(logits, [draw(temperature=0.0, min_tokens=1, stop_token_ids=(5,))], kernels) == [9]
    assert sample(logits, [draw(temperature=0.0, min_tokens=1, stop_token_ids=(5,), output=[1])], kernels) == [5]
    assert logits[0, 5] == 4.0, "the caller's logits stay as they were"


@pytest.mark.parametrize("key", [(0, 0, 0), (2**64 - 1, 3, 10**6), (-1, 0, 7)])
def test_uniform_is_in_range_and_repeats(key: tuple[int, int, int]) -> None:
    assert 0.0 <= uniform(*key) < 1.0
    assert uniform(*key) == uniform(*key)
