"""Tiny random models of each architecture, as `transformers` makes and saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM as AutoModel
from transformers import LlamaConfig, MistralConfig, PreTrainedConfig, PreTrainedModel, Qwen2Config, Qwen3Config

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "attn_implementation": "eager",
}
PROMPT = [(7 * i * i + 3 * i + 5) % 128 for i in range(53)]


def llama(**changes: Any) -> LlamaConfig:
    return LlamaConfig(**(SIZES | changes))


def mistral(**changes: Any) -> MistralConfig:
    return MistralConfig(**(SIZES | changes))


def qwen2(**changes: Any) -> Qwen2Config:
    return Qwen2Config(**(SIZES | changes))


def qwen3(**changes: Any) -> Qwen3Config:
    return Qwen3Config(**(SIZES | {"head_dim": 32} | changes))


def build(config: PreTrainedConfig) -> PreTrainedModel:
    """A model with every number random, biases and norms too (transformers leaves those at 0 and 1)."""
    torch.manual_seed(17)
    model: PreTrainedModel = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    model.eval()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = name.endswith("norm.weight")
            torch.nn.init.normal_(parameter, 1.0 if is_norm else 0.0, 0.2 if parameter.ndim == 1 else 0.15)
    return model


def save(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def expected_logits(model: PreTrainedModel, ids: list[int]) -> Tensor:
    """fp32 [len(ids), vocab], all positions in one pass without a cache."""
    with torch.inference_mode():
        logits: Tensor = model(torch.tensor([ids]), use_cache=False).logits[0]
    return logits
