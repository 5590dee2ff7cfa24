"""Turns the files of `--public-prefix` into the token ids that prompts with these system prompts begin with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from forebay.core.errors import ConfigError, InvalidRequestError
from forebay.recipe import Conversation, Message, Recipe

_PROBES = ("a", "0")
"""Two users' first words: what the prompts for both begin with does not depend on the user."""


def public_prefix(recipe: Recipe, file: Path) -> list[int]:
    """The ids with which every prompt begins whose system prompt is the text of `file`.

    Raises ConfigError when the file can't be read or is empty, or the model has no place for a system prompt.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The public prefix {file} can't be read: {error}.") from error
    if not text.strip():
        raise ConfigError(f"The public prefix {file} is empty.")
    try:
        first, second = (_prompt(recipe, text.rstrip("\n"), probe) for probe in _PROBES)
    except InvalidRequestError as error:
        raise ConfigError(f"The public prefix {file} can't be used with this model: {error.message}") from error
    return first[: _common(first, second)]


def _prompt(recipe: Recipe, system: str, user: str) -> list[int]:
    messages = [Message(role="system", text=system), Message(role="user", text=user)]
    return recipe.encode_chat(Conversation(messages)).ids


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    for i, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return i
    return min(len(first), len(second))
