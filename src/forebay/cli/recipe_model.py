"""The recipe of a model by its name, for commands that need no weights."""

from __future__ import annotations

from pathlib import Path

from forebay.core.gguf import read_gguf
from forebay.models import ModelSource, resolve
from forebay.recipe import Recipe
from forebay.recipe.gguf_tokenizer import gguf_parts
from forebay.recipe.hf_tokenizer import hf_parts
from forebay.recipe.vocabulary import TokenizerParts


def load_recipe(model: str) -> tuple[str, Recipe]:
    """The name and the recipe. A folder needs only a tokenizer's files.

    Raises ForebayError when there is no such model, or its text can't be handled safely.
    """
    source = _source(model)
    return source.name, Recipe.load(source.path, source.kind)


def load_parts(model: str) -> tuple[str, TokenizerParts]:
    """The name and what a recipe is made of. Raises ForebayError as `load_recipe` does."""
    source = _source(model)
    parts = hf_parts(source.path) if source.kind == "hf" else gguf_parts(read_gguf(source.path).metadata)
    return source.name, parts


def _source(model: str) -> ModelSource:
    path = Path(model).expanduser()
    if path.is_dir() and not (path / "config.json").is_file() and not any(path.glob("*.gguf")):
        return ModelSource(path.resolve().name, path, "hf")
    return resolve(model)
