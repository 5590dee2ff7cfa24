"""Models read from GGUF files: every stored type, architecture and rope scaling against `transformers`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.models import gguf_files, tiny
from tests.models.harness import HandRunner, greedy
from transformers import PreTrainedConfig

from forebay.kernels import Kernels
from forebay.models import ModelSource, load_model

STEPS = 24
CHUNKS = (16, 33)
WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
"""K-quants have blocks of 256."""


def check(
    config: PreTrainedConfig, path: Path, kernels: Kernels, kind: str = "F32", extra: dict[str, Any] | None = None
) -> None:
    """Write, load, and compare logits and greedy tokens with the oracle's."""
    oracle = tiny.build(config)
    gguf_files.write(oracle, path, kind, extra)
    runner = HandRunner(load_model(ModelSource("tiny", path, "gguf"), kernels, torch.float32))
    for sequence in greedy(runner, tiny.PROMPT, STEPS, CHUNKS):
        expected = tiny.expected_logits(oracle, sequence.ids[:-1])
        assert (torch.cat(sequence.logits) - expected).abs().max() < 1e-4
        assert sequence.ids[len(tiny.PROMPT) :] == expected[len(tiny.PROMPT) - 1 :].argmax(-1).tolist()


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_type(kind: str, tmp_path: Path, kernels: Kernels) -> None:
    check(tiny.llama(), tmp_path / "tiny.gguf", kernels, kind)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K"])
def test_k_type(kind: str, tmp_path: Path, kernels: Kernels) -> None:
    check(tiny.llama(**WIDE), tmp_path / "tiny.gguf", kernels, kind)


CONFIGS: dict[str, PreTrainedConfig] = {
    "llama-tied": tiny.llama(tie_word_embeddings=True),
    "llama-biases": tiny.llama(attention_bias=True, mlp_bias=True),
    "mistral": tiny.mistral(sliding_window=None, head_dim=32),
    "qwen2": tiny.qwen2(),
    "qwen3": tiny.qwen3(tie_word_embeddings=True),
}


@pytest.mark.parametrize("name", list(CONFIGS))
def test_architecture(name: str, tmp_path: Path, kernels: Kernels) -> None:
    check(CONFIGS[name], tmp_path / "tiny.gguf", kernels)


def test_window(tmp_path: Path, torch_kernels: Kernels) -> None:
    config = tiny.mistral(sliding_window=21)
    check(config, tmp_path / "tiny.gguf", torch_kernels, extra={"attention.sliding_window": 21})


def rope(**parameters: Any) -> PreTrainedConfig:
    return tiny.llama(rope_parameters={"rope_theta": 10000.0} | parameters)


def test_rope_linear(tmp_path: Path, torch_kernels: Kernels) -> None:
    keys = {"rope.scaling.type": "linear", "rope.scaling.factor": 3.0}
    check(rope(rope_type="linear", factor=3.0), tmp_path / "tiny.gguf", torch_kernels, extra=keys)


def test_rope_yarn(tmp_path: Path, torch_kernels: Kernels) -> None:
    keys = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 64,
    }
    config = rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
    check(config, tmp_path / "tiny.gguf", torch_kernels, extra=keys)


def test_rope_yarn_with_its_own_settings(tmp_path: Path, torch_kernels: Kernels) -> None:
    keys = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 64,
        "rope.scaling.yarn_attn_factor": 1.3,
        "rope.scaling.yarn_beta_fast": 16.0,
        "rope.scaling.yarn_beta_slow": 2.0,
        "rope.scaling.yarn_ext_factor": 1.0,
    }
    own = {"attention_factor": 1.3, "beta_fast": 16.0, "beta_slow": 2.0}
    config = rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, **own)
    check(config, tmp_path / "tiny.gguf", torch_kernels, extra=keys)


def test_rope_longrope(tmp_path: Path, torch_kernels: Kernels) -> None:
    short, long = ([start + step * i for i in range(8)] for start, step in ((1.0, 0.05), (1.5, 0.4)))
    config = rope(rope_type="longrope", original_max_position_embeddings=32, short_factor=short, long_factor=long)
    extra = {
        "rope.scaling.type": "longrope",
        "rope.scaling.original_context_length": 32,
        "rope_factors_short.weight": np.array(short, dtype=np.float32),
        "rope_factors_long.weight": np.array(long, dtype=np.float32),
    }
    check(config, tmp_path / "tiny.gguf", torch_kernels, extra=extra)


def test_rope_llama3_comes_as_divisors(tmp_path: Path, torch_kernels: Kernels) -> None:
    config = rope(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32
    )
    check(config, tmp_path / "tiny.gguf", torch_kernels, extra={"rope_freqs.weight": llama3_divisors(8.0, 32)})


def llama3_divisors(factor: float, trained: int) -> NDArray[np.float32]:
    """What a converter writes for theta 10000, head size 16 and low and high factors 1 and 4."""
    divisors = []
    for pair in range(8):
        wave = 2 * math.pi * 10000.0 ** (2 * pair / 16)
        smooth = min(max((trained / wave - 1.0) / 3.0, 0.0), 1.0)
        divisors.append(1.0 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, dtype=np.float32)
