"""Every architecture and rope scaling against `transformers` in fp32: logits, and greedy tokens in all chunk sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.models import tiny
from tests.models.harness import HandRunner, greedy
from transformers import PreTrainedConfig

from forebay.kernels import Kernels
from forebay.models import ModelSource, describe, load_model

STEPS = 64
CHUNKS = (1, 7, 16, 33, len(tiny.PROMPT))
FACTORS = {"short_factor": [1.0 + 0.05 * i for i in range(8)], "long_factor": [1.5 + 0.4 * i for i in range(8)]}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 5000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500.0}


def rope(**parameters: Any) -> PreTrainedConfig:
    return tiny.llama(rope_parameters={"rope_theta": 10000.0} | parameters)


CASES: dict[str, PreTrainedConfig] = {
    "llama": tiny.llama(),
    "llama-tied": tiny.llama(tie_word_embeddings=True),
    "llama-biases": tiny.llama(attention_bias=True, mlp_bias=True),
    "llama-one-kv-head-each": tiny.llama(num_key_value_heads=4),
    "llama-own-head-size": tiny.llama(head_dim=24),
    "llama-rope-linear": rope(rope_type="linear", factor=3.0),
    "llama-rope-dynamic": rope(rope_type="dynamic", factor=2.0),
    "llama-rope-llama3": rope(**LLAMA3, original_max_position_embeddings=32),
    "llama-rope-yarn": rope(**YARN),
    "llama-rope-yarn-mscale": rope(**YARN, mscale=1.2, mscale_all_dim=0.8, truncate=False, beta_fast=20, beta_slow=2),
    "llama-rope-yarn-attention-factor": rope(**YARN, attention_factor=1.3),
    "llama-rope-longrope-long": rope(rope_type="longrope", original_max_position_embeddings=32, **FACTORS),
    "llama-rope-longrope-short": rope(rope_type="longrope", original_max_position_embeddings=256, **FACTORS),
    "mistral": tiny.mistral(sliding_window=None),
    "mistral-window": tiny.mistral(sliding_window=21, head_dim=32),
    "qwen2": tiny.qwen2(),
    "qwen2-window-upper-layers": tiny.qwen2(use_sliding_window=True, sliding_window=20, max_window_layers=1),
    "qwen3": tiny.qwen3(tie_word_embeddings=True),
    "qwen3-biases-window-pattern": tiny.qwen3(
        attention_bias=True,
        use_sliding_window=True,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
}


@pytest.fixture(scope="session", params=list(CASES))
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ModelSource]:
    """The oracle, and the folder that it was saved to."""
    model = tiny.build(CASES[request.param])
    return model, ModelSource("tiny", tiny.save(model, tmp_path_factory.mktemp("model")), "hf")


def test_matches_transformers(saved: tuple[Any, ModelSource], kernels: Kernels) -> None:
    oracle, source = saved
    runner = HandRunner(load_model(source, kernels, torch.float32))
    for sequence in greedy(runner, tiny.PROMPT, STEPS, CHUNKS):
        expected = tiny.expected_logits(oracle, sequence.ids[:-1])
        actual = torch.cat(sequence.logits)
        assert (actual - expected).abs().max() < 1e-4
        # That each token is the oracle's choice after the same ones before it is that both are the same greedy answer.
        assert sequence.ids[len(tiny.PROMPT) :] == expected[len(tiny.PROMPT) - 1 :].argmax(-1).tolist()


def test_describes_what_transformers_built(saved: tuple[Any, ModelSource]) -> None:
    oracle, source = saved
    assert describe(source).parameters == oracle.num_parameters()


def test_the_oracle_tells_cases_apart() -> None:
    """The window and the scalings change the logits of the prompt, so a loader that ignored them would be seen."""
    plain = tiny.expected_logits(tiny.build(CASES["llama"]), tiny.PROMPT)
    for name in ("linear", "llama3", "yarn", "longrope-long", "longrope-short"):
        scaled = tiny.expected_logits(tiny.build(CASES[f"llama-rope-{name}"]), tiny.PROMPT)
        assert (scaled - plain).abs().max() > 1e-2, name
