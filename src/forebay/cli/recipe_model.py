"""The recipe of a model by its name, for commands that need no weights."""

from __future__ import annotations

from pathlib import Path

from forebay.models import resolve
from forebay.recipe import Recipe


def load_recipe(model: str) -> tuple[str, Recipe]:
    """The name and the recipe. A folder needs only a tokenizer's files.

    Raises ForebayError when there is no such model, or its text can't be handled safely.
    """
    path = Path(model).expanduser()
    if path.is_dir() and not (path / "config.json").is_file() and not any(path.glob("*.gguf")):
        return path.resolve().name, Recipe.load(path, "hf")
    source = resolve(model)
    return source.name, Recipe.load(source.path, source.kind)
