"""What --low-memory sets, that a choice of the user stays, and that a quantised model answers the same."""

from __future__ import annotations

import pytest

from forebay.core.request import GenerateRequest, SamplingParams
from forebay.engine.build import build_engine
from forebay.engine.engine import Engine
from forebay.engine.memory import kv_pages
from forebay.engine.options import WorkerOptions, spare_memory

GIB = 1 << 30


def test_defaults_become_small() -> None:
    spared = spare_memory(WorkerOptions(model="m", host_pool=None))
    assert (spared.quantize, spared.max_step_tokens, spared.host_pool, spared.low_memory) == (
        "int4",
        512,
        32 << 20,
        True,
    )
    assert (spared.kv_memory, spared.model) == (None, "m")


@pytest.mark.parametrize("chosen", [{"quantize": "none"}, {"quantize": "int8"}, {"host_pool": 0}, {"host_pool": GIB}])
def test_what_is_chosen_stays(chosen: dict[str, object]) -> None:
    options = WorkerOptions(model="m", kv_memory=GIB, **chosen)  # type: ignore[arg-type]
    spared = spare_memory(options)
    assert {name: getattr(spared, name) for name in chosen} == chosen
    assert spared.kv_memory == GIB


def test_the_kv_cache_gets_less_unless_asked() -> None:
    assert kv_pages(1 << 20, None, 4 * GIB, 1 << 20, 64, low=True) == 256
    assert kv_pages(1 << 20, None, 400 * GIB, 1 << 20, 64, low=True) == 512
    assert kv_pages(1 << 20, 3 * GIB, 4 * GIB, 1 << 20, 64, low=True) == 3072


PROMPT = [(37 * i) % 40_000 for i in range(1200)]


def answer(engine: Engine) -> tuple[list[int], int]:
    """The answer to the prompt, and in how many steps it was given."""
    engine.submit(GenerateRequest(id="a", prompt_ids=PROMPT, sampling=SamplingParams(max_tokens=4, temperature=0.0)))
    tokens: list[int] = []
    steps = 0
    while engine.has_work:
        steps += 1
        tokens += [token for output in engine.step() for token in output.token_ids]
    return tokens, steps


def test_a_quantised_model_answers_the_same_in_more_and_smaller_steps() -> None:
    options = WorkerOptions(model="smollm2", kv_memory=64 << 20, threads=2)
    plain = build_engine(options, lambda _stage, _share: None)
    spared = build_engine(spare_memory(options), lambda _stage, _share: None)
    usual, usual_steps = answer(plain)
    assert len(usual) == 4
    low, low_steps = answer(spared)
    assert low == usual
    assert spared.info.weight_bytes == plain.info.weight_bytes, "nothing was left to quantise"
    assert low_steps >= 3 + 3, "1,200 tokens take three steps of 512, and each further token one"
    assert usual_steps <= low_steps
