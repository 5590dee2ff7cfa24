"""The injection corpus over the typed templates whose real tokenizers can't be fetched, with small ones: nothing is
forged, nothing collides. `test_recipe_corpus_published.py` has the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.recipe.harmony_models import tiny_recipe
from tests.recipe.published_models import MODELS, Published, folder_of, recipe_of

from forebay.recipe import Recipe
from forebay.recipe.corpus_report import CorpusReport
from forebay.recipe.corpus_run import run_corpus

_OF_DEEPSEEK = ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<think>", "</think>", "\uff5cDSML\uff5c")


def _quiet(stage: str, share: float) -> None:
    """No progress."""


def _clean(recipe: Recipe) -> CorpusReport:
    report = run_corpus(recipe, _quiet, every_token=False)
    assert report.clean, report.examples
    assert report.forged_by_string > 20
    return report


@pytest.mark.parametrize("model", [model for model in MODELS if not model.tokenizer], ids=lambda model: model.origin)
def test_nothing_is_forged(model: Published, tmp_path: Path) -> None:
    assert not _clean(recipe_of(folder_of(model, tmp_path))).joined


def test_nothing_is_forged_in_harmony_without_its_jinja_template(tmp_path: Path) -> None:
    report = _clean(tiny_recipe(tmp_path / "model", published=False))
    assert report.fields["tool description"].by_string
    assert not report.joined


@pytest.mark.parametrize("name", ["deepseek-v4", "deepseek-v4.1"])
def test_nothing_is_forged_in_deepseeks_format(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the markers of its turns and all its plain delimiters; the other sixty take a minute."""
    pytest.importorskip("deepseek_recipe")
    from tests.recipe.deepseek_models import built

    recipe = built()[name].recipe
    monkeypatch.setattr(
        "forebay.recipe.corpus_run.typed_spellings", lambda recipe: [*_OF_DEEPSEEK, *sorted(recipe.delimiters)]
    )
    assert "user + user" in _clean(recipe).joined
