"""All layers in one native call give the bits that the single operations give."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch
from tests.models import tiny
from tests.models.harness import HandRunner, HandSequence
from transformers import PreTrainedConfig

from forebay.kernels import EndWeights, Kernels, LayerSettings, LayerWeights, load_kernels
from forebay.kernels.layer_table import NativeStack
from forebay.models import Model, ModelSource, load_model
from forebay.models.loader import Quantize

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

    def stack(self, layers: tuple[LayerWeights, ...], settings: LayerSettings, ends: EndWeights) -> None:
        return None


def logits_of(model: Model, kv_dtype: torch.dtype, *, whole: bool = False) -> torch.Tensor:
    runner = HandRunner(model, kv_dtype=kv_dtype, whole=whole)
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
    model, single = load_model(source, native, dtype), load_model(source, _OneByOne(native), dtype)  # type: ignore[arg-type]
    together, one_by_one = logits_of(model, dtype), logits_of(single, dtype)
    assert torch.isfinite(together).all()
    assert torch.equal(together, one_by_one)
    assert torch.equal(together, logits_of(model, dtype, whole=True)), "with embedding and head in the same call"
    assert torch.equal(together, logits_of(single, dtype, whole=True))
    assert torch.equal(together[0], together[2]), "nor does the size of the chunks matter"


@pytest.mark.parametrize("quantize", ["int4", "int8"])
def test_with_inputs_rounded_to_8_bits_too(quantize: Quantize, native: Kernels, tmp_path: Path) -> None:
    """`native` skips where there is none."""
    rounding = load_kernels("native", "int8")
    source = ModelSource("qwen3", tiny.save(tiny.build(tiny.qwen3(tie_word_embeddings=True)), tmp_path), "hf")
    model = load_model(source, rounding, torch.float32, quantize=quantize)
    single = load_model(source, _OneByOne(rounding), torch.float32, quantize=quantize)  # type: ignore[arg-type]
    together = logits_of(model, torch.bfloat16)
    assert torch.equal(together, logits_of(single, torch.bfloat16))
    assert torch.equal(together, logits_of(model, torch.bfloat16, whole=True))
    assert not torch.equal(
        together, logits_of(load_model(source, native, torch.float32, quantize=quantize), torch.bfloat16)
    )


def test_an_id_that_the_model_has_not_is_refused_in_the_one_call(native: Kernels, tmp_path: Path) -> None:
    source = ModelSource("llama", tiny.save(tiny.build(tiny.llama()), tmp_path), "hf")
    model = load_model(source, native, torch.float32)
    runner = HandRunner(model, whole=True)
    wrong = HandSequence([3, model.config.vocab_size], 2)
    with pytest.raises(ValueError, match=f"token id {model.config.vocab_size} at 1 is outside the vocabulary"):
        runner.step([wrong])


def test_ends_that_do_not_fit_the_layers_are_refused(native: Kernels, tmp_path: Path) -> None:
    source = ModelSource("llama", tiny.save(tiny.build(tiny.llama()), tmp_path), "hf")
    model = load_model(source, native, torch.float32)
    layers, wide = model._weights.layers, native.pack(torch.zeros(8, 4), torch.float32)
    ends = EndWeights(wide, model._weights.final_norm, model._weights.head)
    with pytest.raises(ValueError, match="the embedding is"):
        native.stack(layers, model._settings, ends)


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
