"""What a step costs, worked out by hand, and what an engine says of itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.models import tiny

from forebay.core.activations import Activations
from forebay.core.messages import WorkerStats
from forebay.core.request import GenerateRequest, SamplingParams
from forebay.engine import WorkerOptions
from forebay.engine.build import build_engine
from forebay.engine.engine import Engine
from forebay.kernels import load_kernels

LAYER = 2 * (64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 96 * 64)
"""Operations of a token in a layer: q 64x64, k and v 32x64 each, output 64x64, gate, up and down 96x64 each."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder: Path = tmp_path_factory.mktemp("model")
    tiny.save(tiny.build(tiny.llama(tie_word_embeddings=False)), folder)
    built = build_engine(WorkerOptions(model=str(folder), kv_memory=8 << 20), lambda _stage, _share: None)
    yield built
    built.close()


def test_cost_of_the_parts(engine: Engine) -> None:
    cost = engine.work.cost
    assert cost.layer_flops == 3 * LAYER
    assert cost.head_flops == 2 * 128 * 64
    assert cost.attention_flops == 3 * 4 * 64
    assert cost.kv_token_bytes == 3 * 2 * 32 * 2
    assert cost.weight_bytes == engine.info.weight_bytes - 128 * 64 * 2, "the embedding is not read"


def test_steps_add_up(engine: Engine) -> None:
    engine.submit(GenerateRequest(id="a", prompt_ids=list(range(20)), sampling=SamplingParams(max_tokens=2)))
    while engine.has_work:
        engine.step()
    cost, stats = engine.work.cost, engine.stats()
    seen = 20 * 21 // 2 + 21  # a prompt of 20 tokens, then one token that sees 21
    assert stats.flops == 21 * cost.layer_flops + 2 * cost.head_flops + seen * cost.attention_flops
    assert stats.bytes_read == 2 * cost.weight_bytes + (20 + 21) * cost.kv_token_bytes
    assert stats.busy_s > 0
    assert stats.gemm_gflops > 0
    assert stats.read_gbps > 0
    assert WorkerStats().flops == 0


def test_only_quantised_weights_are_multiplied_in_integers(engine: Engine, tmp_path: Path) -> None:
    """What is not rounded, or to bf16, has the limits, and the kernels' name, of such products."""
    plain: Activations = "bf16" if load_kernels("native", "int8").rounds_bf16 else "fp32"
    assert engine.info.activations == plain
    assert engine.info.kernels == load_kernels("native", plain).name
    tiny.save(tiny.build(tiny.llama()), tmp_path)
    options = WorkerOptions(model=str(tmp_path), kv_memory=8 << 20, kernels="native", quantize="int4")
    with contextlib.closing(build_engine(options, lambda _stage, _share: None)) as rounding:
        assert (rounding.info.activations, rounding.info.kernels.endswith("-int8")) == ("int8", True)
        assert rounding.info.fingerprint != engine.info.fingerprint


def test_no_8_bits_where_bf16_is_asked_for(tmp_path: Path) -> None:
    tiny.save(tiny.build(tiny.llama()), tmp_path)
    options = WorkerOptions(
        model=str(tmp_path), kv_memory=8 << 20, kernels="native", quantize="int8", activations="bf16"
    )
    with contextlib.closing(build_engine(options, lambda _stage, _share: None)) as built:
        assert built.info.activations == "fp32"  # every matrix is quantised: no layer rounds its inputs
