"""The embedded SmolLM2 on real prompts: against `transformers` with the same numbers, and as text."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from tests.models.harness import HandRunner, greedy
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from forebay.core.activations import Activations
from forebay.core.gguf import GgufFile, read_gguf
from forebay.kernels import Kernels, load_kernels
from forebay.models import describe, load_model, resolve
from forebay.models.loader import Quantize
from forebay.models.tensors import GGUF_NAMES, Part, hf_name

QUESTION = ["<|im_start|>", "user", "Ċ", "What", "Ġis", "Ġthe", "Ġcapital", "Ġof", "ĠFrance", "?", "<|im_end|>", "Ċ"]
QUESTION += ["<|im_start|>", "ass", "istant", "Ċ"]
STEPS = 16


@pytest.fixture(scope="session")
def file() -> GgufFile:
    return read_gguf(resolve("smollm2").path)


@pytest.fixture(scope="session")
def vocabulary(file: GgufFile) -> list[str]:
    return list(file.metadata["tokenizer.ggml.tokens"])


@pytest.fixture(scope="session")
def oracle(file: GgufFile) -> LlamaForCausalLM:
    """A `transformers` model of the numbers that the `gguf` package dequantises, rows put back in order."""
    ours = describe(resolve("smollm2"))
    config = LlamaConfig(
        hidden_size=ours.hidden_size,
        intermediate_size=ours.intermediate_size,
        num_hidden_layers=ours.layers,
        num_attention_heads=ours.heads,
        num_key_value_heads=ours.kv_heads,
        vocab_size=ours.vocab_size,
        max_position_embeddings=ours.max_model_len,
        rms_norm_eps=ours.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": ours.rope.theta},
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model: Any = LlamaForCausalLM(config)
    parts = {(part, None) for part in (Part.EMBED, Part.FINAL_NORM)}
    per_layer = [part for part in GGUF_NAMES if f"blk.0.{GGUF_NAMES[part]}" in file.tensors]
    state = {hf_name(part, None): plain(file, GGUF_NAMES[part], 0) for part, _ in parts}
    for layer in range(ours.layers):
        for part in per_layer:
            heads = {Part.Q: ours.heads, Part.K: ours.kv_heads}.get(part, 0)
            state[hf_name(part, layer)] = plain(file, f"blk.{layer}.{GGUF_NAMES[part]}", heads)
    model.load_state_dict(state | {"lm_head.weight": state["model.embed_tokens.weight"]}, strict=True, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its frequencies are no part of the state
    result: LlamaForCausalLM = model.eval()
    return result


def plain(file: GgufFile, name: str, heads: int) -> Tensor:
    tensor = file.tensors[name]
    raw = np.array(file.tensor_bytes(name))
    typed = raw.view(np.float32) if tensor.type.name == "F32" else raw.reshape(tensor.shape[0], -1)
    values = gguf.quants.dequantize(typed, GGMLQuantizationType[tensor.type.name]).reshape(tensor.shape)
    if heads:
        values = values.reshape(heads, -1, 2, tensor.shape[1]).swapaxes(1, 2).reshape(tensor.shape)
    return torch.from_numpy(np.array(values))


def test_matches_transformers(oracle: LlamaForCausalLM, vocabulary: list[str], kernels: Kernels) -> None:
    prompt = [vocabulary.index(token) for token in QUESTION]
    runner = HandRunner(load_model(resolve("smollm2"), kernels, torch.float32))
    (sequence,) = greedy(runner, prompt, STEPS, (8,))
    with torch.inference_mode():
        expected = oracle(torch.tensor([sequence.ids[:-1]]), use_cache=False).logits[0]
    actual = torch.cat(sequence.logits)
    assert (actual - expected).abs().max() < 1e-3
    assert torch.equal(actual.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize("activations", ["fp32", "int8"])
@pytest.mark.parametrize("quantize", ["none", "auto"])
def test_answers_in_bf16(quantize: Quantize, activations: Activations, vocabulary: list[str], kernels: Kernels) -> None:
    rounding = load_kernels(kernels.name.split("-")[0], activations)
    model = load_model(resolve("smollm2"), rounding, torch.bfloat16, quantize=quantize)
    runner = HandRunner(model, kv_dtype=torch.bfloat16)
    prompt = [vocabulary.index(token) for token in QUESTION]
    (sequence,) = greedy(runner, prompt, 8, (len(prompt),))
    answer = [vocabulary[token] for token in sequence.ids[len(prompt) :]]
    assert "".join(answer).replace("Ġ", " ") == "The capital of France is Paris.<|im_end|>"


def test_weights_kept_as_stored_take_the_memory_of_the_file(file: GgufFile) -> None:
    kernels = load_kernels()
    if not kernels.keeps_quantised:
        pytest.skip("no native kernels here")
    model = load_model(resolve("smollm2"), kernels, torch.bfloat16)
    table = model.config.max_model_len * model.config.head_dim * 4
    stored = sum(tensor.nbytes for tensor in file.tensors.values())
    assert abs(model.weight_bytes - table - stored) < 0.01 * stored
