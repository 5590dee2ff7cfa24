"""The step-time model finds what steps cost, and a stall does not make it forget."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from forebay.scheduling import StepTimeModel

Features = tuple[int, int, int]
MACHINES = [(0.018, 0.0025, 0.0008, 2e-7), (0.3, 0.1, 0.03, 1e-6), (0.001, 1e-5, 1e-5, 1e-10), (0.02, 0.0025, 0.0, 0.0)]


def seconds(machine: tuple[float, ...], step: Features) -> float:
    return machine[0] + sum(cost * amount for cost, amount in zip(machine[1:], step, strict=True))


def some_step(rng: random.Random) -> Features:
    rows, context, start = rng.randint(0, 32), rng.randint(10, 4000), rng.randint(0, 4000)
    tokens = rng.choice([0, 0, 16, 256, 512, 1024]) if rows else 256
    return tokens, rows, rows * context + tokens * start + tokens * (tokens + 1) // 2


def train(machine: tuple[float, ...], steps: int, disturb: Callable[[random.Random], float]) -> StepTimeModel:
    rng, model = random.Random(1), StepTimeModel()
    for _ in range(steps):
        step = some_step(rng)
        model.observe(*step, seconds(machine, step) * disturb(rng))
    return model


def worst(model: StepTimeModel, machine: tuple[float, ...]) -> float:
    rng = random.Random(2)
    steps = [some_step(rng) for _ in range(200)]
    return max(abs(model.predict(*step) / seconds(machine, step) - 1) for step in steps)


@pytest.mark.parametrize("machine", MACHINES)
def test_it_learns_machines_far_from_the_prior(machine: tuple[float, ...]) -> None:
    model = train(machine, 300, lambda rng: rng.uniform(0.95, 1.05))
    assert worst(model, machine) < 0.05
    assert model.coefficients[1] == pytest.approx(machine[1], rel=0.1)


def test_it_recovers_the_coefficients_of_exact_steps() -> None:
    model = train(MACHINES[0], 600, lambda _: 1.0)
    assert model.coefficients == pytest.approx(MACHINES[0], rel=0.05)


@pytest.mark.parametrize("machine", MACHINES)
def test_stalls_do_not_wreck_it(machine: tuple[float, ...]) -> None:
    model = train(machine, 400, lambda rng: 100.0 if rng.random() < 0.05 else rng.uniform(0.95, 1.05))
    assert worst(model, machine) < 0.1


def test_one_stall_moves_a_prediction_little() -> None:
    model = train(MACHINES[0], 200, lambda rng: rng.uniform(0.95, 1.05))
    before = model.predict(0, 8, 8000)
    model.observe(0, 8, 8000, 30.0)
    assert model.predict(0, 8, 8000) < 1.1 * before


def test_it_follows_a_machine_that_gets_slower() -> None:
    model, rng = train(MACHINES[0], 200, lambda rng: rng.uniform(0.95, 1.05)), random.Random(3)
    slower = tuple(2 * coefficient for coefficient in MACHINES[0])
    for _ in range(60):
        step = some_step(rng)
        model.observe(*step, seconds(slower, step))
    assert worst(model, slower) < 0.15


def test_long_decoding_does_not_unlearn_prefill() -> None:
    model = train(MACHINES[0], 200, lambda rng: rng.uniform(0.95, 1.05))
    for context in range(2000):
        model.observe(0, 8, 8 * context, seconds(MACHINES[0], (0, 8, 8 * context)))
    assert model.coefficients[1] == pytest.approx(MACHINES[0][1], rel=0.1)


def test_coefficients_are_never_negative() -> None:
    rng, model = random.Random(4), StepTimeModel()
    for _ in range(300):
        model.observe(*some_step(rng), rng.uniform(0.001, 1.0))
        assert min(model.coefficients) >= 0


def test_the_prior_holds_without_data_and_nonsense_is_ignored() -> None:
    model = StepTimeModel(prior=(1.0, 0.5, 0.25, 0.125))
    model.observe(1, 1, 1, 0.0)
    assert model.predict(2, 4, 8) == pytest.approx(4.0)
    assert model.observations == 0
    with pytest.raises(ValueError, match="must not be negative"):
        StepTimeModel(prior=(-1.0, 0.0, 0.0, 0.0))
