"""Fixtures that several packages' tests share: a tiny model on disk, and the embedded one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forebay.engine.threads import THREAD_SETTINGS

# Not pinned as a worker is: processes that tests start would inherit the one core of the main thread.
os.environ |= THREAD_SETTINGS | os.environ


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with a random Llama: two layers, vocabulary 256, context 512, no tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("tiny-llama")
    torch.manual_seed(11)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=256,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
