"""Writes a tiny Llama of random weights with a long context, for measurements in which only lengths count.

It has no tokenizer and its text means nothing: two layers, one head, so that tens of thousands of tokens are read in
seconds. A shape of which speed is compared with others is made by `bench/random_llama.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from forebay.models.hf_config import read_hf_config
from forebay.models.tensors import hf_name, part_shapes

LAYERS, HIDDEN, VOCABULARY = 2, 64, 1024


def write_random_model(folder: Path, context: int) -> None:
    """Make `folder` a Hugging Face model of `context` tokens; the same weights each time."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": HIDDEN,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    random = torch.Generator().manual_seed(1)
    weights = {}
    for (part, layer), shape in part_shapes(read_hf_config(folder)).items():
        drawn = torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=random) * shape[-1] ** -0.5
        weights[hf_name(part, layer)] = drawn.to(torch.bfloat16)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
