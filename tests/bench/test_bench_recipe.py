"""The recipe's benchmark: what it times is real work, and what it compares with gives the same ids."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from tests.recipe.families import FAMILIES, byte_level, template_text, write_folder

from forebay.bench import recipe as bench
from forebay.bench.official import OfficialTemplate
from forebay.bench.recipe import RecipePlan, measure_recipe
from forebay.bench.texts import conversation_of, next_turn, text_of
from forebay.cli.main import main
from forebay.recipe import Recipe
from forebay.recipe.hf_tokenizer import hf_parts
from forebay.recipe.vocabulary import TokenizerParts

_PLAN = RecipePlan(chars=4_000, runs=2, answer_tokens=200)


def _quiet(stage: str, share: float) -> None:
    """No progress."""


@pytest.fixture(scope="module", params=["chatml", "qwen3"])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TokenizerParts:
    folder = tmp_path_factory.mktemp("model")
    write_folder(folder, byte_level(FAMILIES[request.param]), FAMILIES[request.param], template_text(request.param))
    return hf_parts(folder)


def test_texts_have_the_asked_length_and_differ_by_seed() -> None:
    conversation = conversation_of(10_000, random.Random(1))
    assert abs(sum(len(message.content) for message in conversation.messages) - 10_000) < 10
    assert conversation.messages[-1].role == "user"
    assert conversation == conversation_of(10_000, random.Random(1))
    assert text_of(500, random.Random(1)) != text_of(500, random.Random(2))
    assert next_turn(conversation, random.Random(1)).messages[: len(conversation.messages)] == conversation.messages


def test_transformers_makes_the_same_ids(parts: TokenizerParts) -> None:
    pytest.importorskip("transformers")
    conversation = conversation_of(3_000, random.Random(3))
    messages = [{"role": message.role, "content": message.content} for message in conversation.messages]
    assert OfficialTemplate(parts).ids(messages) == Recipe(parts).encode_chat(conversation).ids


def test_figures_are_there(parts: TokenizerParts) -> None:
    figures = measure_recipe(Recipe(parts), parts, _PLAN, _quiet)
    for name in ("encode_ms_100k_chars", "times_transformers", "parse_us_per_token", "next_turn_ms"):
        assert figures[name] > 0
    assert figures["template"] in ("chatml", "qwen3")


def test_without_transformers_the_field_is_null_with_a_word(
    parts: TokenizerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    figures = measure_recipe(Recipe(parts), parts, _PLAN, _quiet)
    assert figures["times_transformers"] is None
    assert "not installed" in figures["transformers"]
    assert figures["encode_ms_100k_chars"] > 0


def test_without_a_template_there_is_nothing_to_compare(parts: TokenizerParts) -> None:
    bare = replace(parts, chat_template=None)
    figures = measure_recipe(Recipe(parts), bare, _PLAN, _quiet)
    assert figures["times_transformers"] is None
    assert "no Jinja template" in figures["transformers"]


def test_the_command_prints_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path, byte_level(FAMILIES["chatml"]), FAMILIES["chatml"], template_text("chatml"))
    monkeypatch.setattr(bench, "RecipePlan", lambda runs: _PLAN)
    assert main(["bench", "recipe", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parse_us_per_token"] > 0
    assert main(["bench", "recipe", str(tmp_path)]) == 0
    assert "as fast as transformers" in capsys.readouterr().out
