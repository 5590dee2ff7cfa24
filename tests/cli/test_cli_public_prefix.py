"""Public prefixes on the command line: what of a prompt they cover with the real recipe, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.cli.public_prefix import public_prefix
from forebay.core.errors import ConfigError
from forebay.models import resolve
from forebay.recipe import Conversation, Message, Recipe

SYSTEM = "You are the assistant of a small library. " * 8


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    source = resolve("smollm2")
    return Recipe.load(source.path, source.kind)


def test_every_prompt_with_this_system_prompt_begins_with_it(recipe: Recipe, tmp_path: Path) -> None:
    file = tmp_path / "system.txt"
    file.write_text(SYSTEM + "\n")
    ids = public_prefix(recipe, file)
    for user in ("0", "a", "Which books?", "\n"):
        messages = [Message(role="system", text=SYSTEM), Message(role="user", text=user)]
        assert recipe.encode_chat(Conversation(messages)).ids[: len(ids)] == ids
    text = recipe.decode(ids)
    assert SYSTEM in text
    other = [Message(role="system", text="Another."), Message(role="user", text="0")]
    assert recipe.encode_chat(Conversation(other)).ids[: len(ids)] != ids


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_what_is_no_prefix_is_refused(recipe: Recipe, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "system.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match="public prefix"):
        public_prefix(recipe, file)
