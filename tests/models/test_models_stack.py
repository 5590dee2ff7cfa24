"""All layers in one native call give the bits that the single operations give."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch
from tests.models import tiny
from tests.models.harness import HandRunner, HandSequence
from transformers import PreTrainedConfig

from forebay.kernels import Kernels, LayerSettings, LayerWeights
from forebay.kernels.layer_table import NativeStack
from forebay.models import Model, ModelSource, load_model

CASES: dict[str, PreTrainedConfig] = {
    "mistral-window": tiny.mistral(sliding_window=21, head_dim=32),
    "qwen2-biases": tiny.qwen2(),
    "qwen3-norms": tiny.qwen3(tie_word_embeddings=True),
    "llama-biases": tiny.llama(attention_bias=True, mlp_bias=True),
}


class _OneByOne:
    """The same kernels without their stack."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels

    def __getattr__(self, name: str) -> object:
        return getattr(self._kernels, name)

    def stack(self, layers: tuple[LayerWeights, ...], settings: LayerSettings) -> None:
        return None


def logits_of(model: Model, kv_dtype: torch.dtype) -> torch.Tensor:
    runner = HandRunner(model, kv_dtype=kv_dtype)
    sequences = [HandSequence(list(tiny.PROMPT), chunk) for chunk in (1, 16, 53)]
    while live := [sequence for sequence in sequences if sequence.next_tokens()]:
        runner.step(live)
    return torch.stack([torch.cat(sequence.logits) for sequence in sequences])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_one_call_and_single_operations_give_the_same_bits(
    case: str, dtype: torch.dtype, native: Kernels, tmp_path: Path
) -> None:
    source = ModelSource(case, tiny.save(tiny.build(CASES[case]), tmp_path), "hf")
    together = logits_of(load_model(source, native, dtype), dtype)
    one_by_one = logits_of(load_model(source, _OneByOne(native), dtype), dtype)  # type: ignore[arg-type]
    assert torch.isfinite(together).all()
    assert torch.equal(together, one_by_one)
    assert torch.equal(together[0], together[2]), "nor does the size of the chunks matter"


def test_memory_of_a_large_step_is_given_back_at_a_small_one_and_kept_at_a_similar_one(
    native: Kernels, tmp_path: Path
) -> None:
    source = ModelSource("tiny", tiny.save(tiny.build(CASES["qwen2-biases"]), tmp_path), "hf")
    table = load_model(source, native, torch.float32)._stack
    assert isinstance(table, NativeStack)
    table._reserve(32 << 20)
    place = table._work.fill_(1.0).data_ptr()
    table._reserve(16 << 20)
    assert table._work.data_ptr() == place
    held = psutil.Process().memory_info().rss
    table._reserve(1000)
    assert psutil.Process().memory_info().rss < held - (120 << 20)
    assert table._work.numel() >= 1000
