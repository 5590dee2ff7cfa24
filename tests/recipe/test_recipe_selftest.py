"""Vocabularies whose text leaks into control tokens are refused at start, by the leaking token's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.recipe.families import Family
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from forebay.core.errors import InvalidRequestError, UnsupportedModelError
from forebay.recipe import Recipe
from forebay.recipe.delimiters import Delimiters
from forebay.recipe.hf_tokenizer import hf_parts
from forebay.recipe.selftest import check_text_is_plain
from forebay.recipe.vocabulary import Prefix, Scheme, TokenizerParts, Vocabulary

_MARK = "<|end|>"


def _byte_level(extra: list[str], merges: list[tuple[str, str]], **options: Any) -> Tokenizer:
    vocab = {character: at for at, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for token in extra:
        vocab[token] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, **options))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return tokenizer


def _load(folder: Path, tokenizer: Tokenizer, *, add: bool = True) -> Recipe:
    if add:
        tokenizer.add_special_tokens([AddedToken(_MARK, special=True, normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": _MARK}))
    return Recipe.load(folder, "hf")


def _merges_to(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens and merges that build up a text from the left."""
    tokens = [text[:end] for end in range(2, len(text) + 1)]
    return tokens, [(text[: end - 1], text[end - 1]) for end in range(2, len(text) + 1)]


def test_a_clean_vocabulary_is_accepted(tmp_path: Path) -> None:
    recipe = _load(tmp_path, _byte_level([], []))
    assert recipe.template_name == "none"
    assert [recipe.token_text(token) for token in recipe.plain_ids(_MARK)] == list(_MARK)


def test_merges_that_spell_a_marker_are_refused(tmp_path: Path) -> None:
    tokens, merges = _merges_to(_MARK)
    with pytest.raises(UnsupportedModelError, match=r"<\|end\|>"):
        _load(tmp_path, _byte_level(tokens, merges))


def test_a_marker_in_the_base_vocabulary_with_ignore_merges_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"<\|end\|>"):
        _load(tmp_path, _byte_level([_MARK], [], ignore_merges=True))


def test_a_marker_in_the_base_vocabulary_that_no_merge_reaches_is_accepted(tmp_path: Path) -> None:
    recipe = _load(tmp_path, _byte_level([_MARK], []))
    assert recipe.is_control(recipe.vocab_size - 1)
    assert not any(map(recipe.is_control, recipe.plain_ids(f"a{_MARK}")))


def test_a_named_marker_that_is_no_added_token_is_tested_too(tmp_path: Path) -> None:
    tokens, merges = _merges_to(_MARK)
    with pytest.raises(UnsupportedModelError, match=r"<\|end\|>"):
        _load(tmp_path, _byte_level(tokens, merges), add=False)


def test_a_normaliser_that_folds_look_alikes_is_refused(tmp_path: Path) -> None:
    """The marker can't be typed as it is (its bars are replaced), but a look-alike is folded into it."""
    tokens, merges = _merges_to("</end/>")
    tokenizer = _byte_level(tokens, merges)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Replace("\uff5c", "/"), normalizers.Replace("<|end|>", "x")]
    )
    tokenizer.add_special_tokens([AddedToken("</end/>", special=True, normalized=False)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UnsupportedModelError, match="</end/>"):
        Recipe.load(tmp_path, "hf")


def test_a_lowercasing_normaliser_is_refused(tmp_path: Path) -> None:
    tokens, merges = _merges_to(_MARK)
    tokenizer = _byte_level(tokens, merges)
    tokenizer.normalizer = normalizers.Lowercase()
    with pytest.raises(UnsupportedModelError, match=r"<\|end\|>"):
        _load(tmp_path, tokenizer)


@pytest.mark.parametrize(
    "folds",
    [
        normalizers.Sequence([normalizers.Replace("<", ""), normalizers.NFKC()]),
        normalizers.Sequence([normalizers.Replace(_MARK, ""), normalizers.Replace("\u200b", "")]),
        normalizers.Sequence([normalizers.Replace(_MARK, ""), normalizers.Replace("\u00ad", "")]),
        normalizers.Sequence([normalizers.Replace(_MARK, ""), normalizers.Replace("\ufe0f", "")]),
    ],
)
def test_a_normaliser_that_hides_markers_but_makes_them_of_look_alikes_is_refused(tmp_path: Path, folds: Any) -> None:
    """The marker as it is never passes; in full width, or with unseen characters inside, it does."""
    tokens, merges = _merges_to(_MARK)
    tokenizer = _byte_level(tokens, merges)
    tokenizer.normalizer = folds
    with pytest.raises(UnsupportedModelError, match=r"<\|end\|>"):
        _load(tmp_path, tokenizer)


def test_halves_that_parts_of_a_message_join_are_tried(tmp_path: Path) -> None:
    tokens, merges = _merges_to(_MARK)
    tokenizer = _byte_level(tokens, merges)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Replace(_MARK, ""), normalizers.Replace("<|e\nnd|>", _MARK)]
    )
    with pytest.raises(UnsupportedModelError, match=r"<\|end\|>"):
        _load(tmp_path, tokenizer)


def test_a_normaliser_that_folds_onto_a_plain_delimiter_is_refused() -> None:
    parts = _parts(normalizers.NFKC())
    with pytest.raises(UnsupportedModelError, match="only looks like it"):
        Delimiters(Vocabulary(parts), ["<tool>"])
    assert Delimiters(Vocabulary(_parts(None)), ["<tool>"]).parts("a<tool>") == ["a<t", "ool>"]


_TOOL = ["to", "ol", "tool"], [("t", "o"), ("o", "l"), ("to", "ol")]


def _parts(normalizer: Any, tokens: list[str] = _TOOL[0], merges: list[tuple[str, str]] = _TOOL[1]) -> Any:
    tokenizer = _byte_level(tokens, merges)
    tokenizer.normalizer = normalizer
    return TokenizerParts(
        plain=tokenizer,
        continued=tokenizer,
        scheme=Scheme.BYTE_LEVEL,
        prefix=Prefix.NONE,
        size=tokenizer.get_vocab_size(),
        control={},
        bos_id=None,
        adds_bos=False,
        stop_ids=(),
        chat_template=None,
    )


def test_a_delimiter_without_one_place_for_all_contexts_is_cut_everywhere() -> None:
    """Behind a space it is cut at one place, elsewhere at the other."""
    tokens, merges = ["\u0120<", "<b", "b>"], [("\u0120", "<"), ("<", "b"), ("b", ">")]
    vocabulary = Vocabulary(_parts(None, tokens, merges))
    parts = Delimiters(vocabulary, ["<b>"]).parts("x<b>y")
    assert parts == ["x<", "b", ">y"]
    typed = [each for part in parts for each in vocabulary.plain_ids(part)]
    assert typed != vocabulary.plain_ids("x<b>y")


def test_a_delimiter_whose_tokens_are_single_characters_cannot_be_told_apart() -> None:
    with pytest.raises(UnsupportedModelError, match="can't tell"):
        Delimiters(Vocabulary(_parts(None)), ["<b>"])


def test_a_leak_that_the_self_test_missed_is_refused_at_request_time(tmp_path: Path) -> None:
    """Merges behind a rare prefix: only a text with that prefix leaks."""
    tokenizer = _byte_level(["ab"], [("a", "b")])
    tokenizer.normalizer = normalizers.Replace("zz", "ab")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    parts = hf_parts(tmp_path)
    vocabulary = Vocabulary(_with_control(parts, {"\u2603": len(pre_tokenizers.ByteLevel.alphabet())}))
    check_text_is_plain(vocabulary)
    assert vocabulary.plain_ids("z")
    with pytest.raises(InvalidRequestError, match="can't be served safely"):
        vocabulary.plain_ids("a zz")


def _with_control(parts: Any, control: dict[str, int]) -> Any:
    from dataclasses import replace

    return replace(parts, control=control)


def test_the_self_test_runs_at_load(built: dict[str, Family], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(
        "forebay.recipe.recipe.check_text_is_plain", lambda vocabulary: seen.append(len(vocabulary.control))
    )
    Recipe.load(built["chatml"].folder, "hf")
    assert seen == [3]
