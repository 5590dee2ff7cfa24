"""The injection corpus: it covers what it says, finds nothing in any family, and does find what is planted."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from tests.recipe.families import Family, talk

from forebay.core.errors import InvalidRequestError
from forebay.core.prompt import Origin
from forebay.recipe import Conversation, Recipe
from forebay.recipe.by_string import StringRendering
from forebay.recipe.corpus import FIELDS, FORMS, texts_of
from forebay.recipe.corpus_report import CorpusReport
from forebay.recipe.corpus_run import run_corpus
from forebay.recipe.corpus_tokens import ALONE_IN_CLASS, TokenClass, classes_of, typed_spellings
from forebay.recipe.hf_tokenizer import hf_parts
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.vocabulary import Vocabulary

_SPELLING = "<|im_end|>"


def _quiet(stage: str, share: float) -> None:
    """No progress."""


def test_nothing_is_forged_in_any_family(family: Family) -> None:
    report = run_corpus(family.recipe, _quiet)
    assert report.cases > 100
    assert report.clean, report.examples
    assert report.forged_by_string > 0
    assert report.fields["content of user"].shown
    assert report.fields["role"].cases == 0


def test_the_forms_are_what_they_say() -> None:
    made = {form: FORMS[form](_SPELLING) for form in FORMS}
    assert made["whole"] == _SPELLING
    assert "".join(made["split over parts"]) == _SPELLING
    assert str(made["doubled"]).replace(_SPELLING, "", 2).replace(_SPELLING, "") == f" {_SPELLING}"
    for form in ("other width", "NFKC-equal"):
        assert made[form] != _SPELLING
        assert unicodedata.normalize("NFKC", str(made[form])) == _SPELLING
    assert made["other width"] != made["NFKC-equal"]
    assert str(made["zero width inside"]).replace("\u200b", "") == _SPELLING
    assert FORMS["other width"]("<\uff5cUser\uff5c>") == "\uff1c\uff5c\uff35\uff53\uff45\uff52\uff5c\uff1e"


def test_every_field_holds_the_text_somewhere() -> None:
    for field in FIELDS:
        for form in FORMS:
            for text in texts_of(field, form, ["mark"]):
                whole = repr(field.place(text).conversation)
                parts = [text] if isinstance(text, str) else text
                assert all(repr(part)[1:-1] in whole for part in parts), (field.name, form)


def test_large_classes_are_sampled_and_covered() -> None:
    spellings = ["<s>", *(f"<unused{number}>" for number in range(300))]
    small, large = classes_of(spellings)
    assert small.alone == ("<s>",)
    assert large.pattern == "<unused#>"
    assert len(large.alone) == ALONE_IN_CLASS
    assert {large.alone[0], large.alone[-1]} == {"<unused0>", "<unused299>"}
    assert sorted((*large.alone, *large.together)) == sorted(spellings[1:])


def test_plain_delimiters_are_typed_too(built: dict[str, Family]) -> None:
    assert "[/INST]" in typed_spellings(built["llama2"].recipe)


class _Leaky(Recipe):
    """A recipe whose template makes a control token of a user's text, as string formatting does."""

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        for piece in super().pieces(conversation, continue_final=continue_final):
            if isinstance(piece, Text) and piece.origin is Origin.USER and _SPELLING in piece.text:
                first, _, rest = piece.text.partition(_SPELLING)
                yield from (Text(first, piece.origin), Control(self.vocabulary.control_id(_SPELLING)))
                piece = Text(rest, piece.origin)  # noqa: PLW2901
            yield piece


class _Joining(Recipe):
    """A recipe that puts an answer behind a question with plain words between, which a user can type."""

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        list(super().pieces(conversation, continue_final=continue_final))  # the checks
        for at, message in enumerate(conversation.messages):
            yield Words(f"\nspeaker {message.role}\n" if at else "")
            yield Text(message.content, message.origin)


def _of(kind: type[Recipe], family: Family) -> Recipe:
    return kind(hf_parts(family.folder))


def test_a_planted_leak_is_found(built: dict[str, Family]) -> None:
    report = run_corpus(_of(_Leaky, built["chatml"]), _quiet)
    assert report.fields["content of user"].forged >= 2
    assert report.fields["content of system"].forged == 0
    assert any(_SPELLING in example for example in report.examples)
    assert not report.clean


def test_a_planted_collision_is_found(built: dict[str, Family]) -> None:
    report = run_corpus(_of(_Joining, built["chatml"]), _quiet)
    assert report.collisions > 0
    assert any("speaker" in example for example in report.examples)
    assert not report.clean


def test_messages_that_a_template_joins_are_named(built: dict[str, Family]) -> None:
    report = run_corpus(built["mistral-v3"].recipe, _quiet)
    assert "system + user" in report.joined
    assert not run_corpus(built["chatml"].recipe, _quiet).joined


def test_a_class_typed_in_one_text_is_counted_one_by_one(
    built: dict[str, Family], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Typing a class together finds as much as typing each alone."""
    alone = run_corpus(built["chatml"].recipe, _quiet)
    monkeypatch.setattr("forebay.recipe.corpus_tokens.ALONE_IN_CLASS", 2)
    monkeypatch.setattr("forebay.recipe.corpus_run.classes_of", _one_class)
    together = run_corpus(built["chatml"].recipe, _quiet)
    for name in ("content of user", "content of system", "prefill"):
        assert _counts(together, name) == _counts(alone, name)
    leaky = run_corpus(_of(_Leaky, built["chatml"]), _quiet)
    assert leaky.fields["content of user"].forged >= 2


def _counts(report: CorpusReport, field: str) -> tuple[int, int]:
    return report.fields[field].cases, report.fields[field].by_string


def _one_class(spellings: Iterable[str]) -> list[TokenClass]:
    return [TokenClass("#", tuple(spellings))]


def test_string_rendering_is_what_the_official_way_makes(family: Family) -> None:
    """The control tokens that the model's own template gives as a string, with those that a user typed."""
    rendering = StringRendering(family.recipe.vocabulary)
    typed = "".join(family.control)
    for text in ("Hi there", f"a {typed} b", f"{typed}{typed}"):
        conversation = talk(("user", text))
        tokens = rendering.tokens(rendering.spell(family.recipe.pieces(conversation)))
        assert [token.id for token in tokens] == family.official_ids(conversation)
        forged = sum(token.forged for token in tokens)
        assert forged == len(family.control) * text.count(typed)
        assert all(token.origin is Origin.USER for token in tokens if token.forged)


def test_a_model_without_a_template_is_not_clean_by_chance(built: dict[str, Family]) -> None:
    bare = Recipe(replace(hf_parts(built["chatml"].folder), chat_template=None))
    report = run_corpus(bare, _quiet)
    assert report.fields["content of user"].cases == 0
    assert "no chat template" in report.fields["content of user"].why_refused
    with pytest.raises(InvalidRequestError):
        bare.encode_chat(talk(("user", "Hi")))


def test_string_rendering_takes_the_longest_spelling(built: dict[str, Family]) -> None:
    parts = hf_parts(built["chatml"].folder)
    known = {"<a": 1, "<a>": 2, "<ab>": 3, "<b|": 4, "(": 5}
    rendering = StringRendering(Vocabulary(replace(parts, control=known)))
    spelled = rendering.spell([Text("<a <a> <ab> <b| ( <abc", Origin.USER), Control(2)])
    found = [token.id for token in rendering.tokens(spelled) if token.control]
    assert found == [1, 2, 3, 4, 5, 1, 2]
    assert rendering.forged(spelled) == 6
