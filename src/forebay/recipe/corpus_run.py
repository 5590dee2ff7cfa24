"""Runs the injection corpus over one model's recipe and counts what goes wrong. It decides nothing about a model.

Every spelling is tried in every field and form. Those of a large class of alike ones (`corpus_tokens.py`) are typed
many at a time, in one text; when that text does anything that a plain one does not, each is tried by itself. Where a
field is refused or does not reach the prompt, some of each class stand for all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from forebay.core.errors import InvalidRequestError
from forebay.core.prompt import Prompt
from forebay.recipe.by_string import Spelled, StringRendering
from forebay.recipe.corpus import FIELDS, FORMS, Field, Placed, Typed, benign, shown, texts_of
from forebay.recipe.corpus_answers import try_answers
from forebay.recipe.corpus_report import CorpusReport, FieldCount
from forebay.recipe.corpus_tokens import classes_of, typed_spellings
from forebay.recipe.corpus_turns import try_turns
from forebay.recipe.recipe import Recipe

Progress = Callable[[str, float], None]
_TOGETHER: Final = 256
"""Spellings that are typed in one text."""
_BETWEEN: Final = "\ue000"
"""A private character that stands between them: no template and no spelling has it."""


def run_corpus(recipe: Recipe, progress: Progress, *, every_token: bool = True) -> CorpusReport:
    """Try everything on a recipe. `progress` is called with each stage and its share done.

    With `every_token` false, of a class of spellings that differ only by a number some are tried, not all.
    """
    report = CorpusReport()
    classes = classes_of(typed_spellings(recipe))
    alone = tuple(spelling for each in classes for spelling in each.alone)
    together = tuple(spelling for each in classes for spelling in each.together) if every_token else ()
    corpus = _Corpus(recipe, report, alone, together)
    for place, field in enumerate(FIELDS):
        progress(f"typing control tokens as {field.name}", 0.9 * place / len(FIELDS))
        corpus.try_field(field)
    progress("typing whole turns", 0.9)
    try_turns(recipe, report)
    progress("stop strings and schemas of answers", 0.95)
    try_answers(recipe, alone, report)
    return report


class _Corpus:
    """One run."""

    def __init__(self, recipe: Recipe, report: CorpusReport, alone: tuple[str, ...], together: tuple[str, ...]) -> None:
        self._recipe = recipe
        self._report = report
        self._alone = alone
        self._together = together
        self._rendering = StringRendering(recipe.vocabulary)
        self._seen: dict[tuple[int, ...], tuple[str, str]] = {}

    def try_field(self, field: Field) -> None:
        """Every form in one field."""
        count = self._report.fields[field.name] = FieldCount()
        for form in FORMS:
            alone = texts_of(field, form, self._alone)
            if not alone:
                continue
            try:
                expected = self._expected(field, form, count)
            except InvalidRequestError as error:
                count.why_refused = error.message
                count.refused += len(alone)
                continue
            for text in alone:
                self._one(field, form, text, expected, count)
            for texts in _chunks(texts_of(field, form, self._together) if count.shown else ()):
                if not self._many(field, texts, expected, count):
                    for text in texts:
                        self._one(field, form, text, expected, count)

    def _expected(self, field: Field, form: str, count: FieldCount) -> list[int]:
        """The template's own control tokens. Raises InvalidRequestError when it has no place for the field."""
        first, second = (self._encoded(benign(field, form, word)) for word in ("word", "other"))
        count.shown = first.ids != second.ids
        return self._controls(first)

    def _one(self, field: Field, form: str, text: Typed, expected: Sequence[int], count: FieldCount) -> None:
        placed = field.place(text)
        try:
            prompt = self._encoded(placed)
        except InvalidRequestError as error:
            count.refused += 1
            count.why_refused = error.message
            return
        count.cases += 1
        count.by_string += self._rendering.forged(self._spelled(placed)) > 0
        if self._controls(prompt) != expected:
            count.forged += 1
            self._report.add_example(f"forged: {field.name}, {form}: {shown(text)!r}")
        if count.shown:
            self._compare(prompt, field, shown(text))

    def _many(self, field: Field, texts: Sequence[Typed], expected: Sequence[int], count: FieldCount) -> bool:
        """Try many in one text; False when that has to be done one by one."""
        placed = field.place(_joined(texts))
        try:
            prompt = self._encoded(placed)
        except InvalidRequestError:
            return False
        if self._controls(prompt) != expected:
            return False
        count.cases += len(texts)
        count.by_string += self._forged_of(texts, self._spelled(placed))
        return True

    def _forged_of(self, texts: Sequence[Typed], spelled: Spelled) -> int:
        """Of how many of the texts string rendering makes a control token: the template shows them as they are, or
        within JSON."""
        written = set(spelled.text.split(_BETWEEN)[1:-1])
        written |= {piece.strip("\n") for piece in written}
        forging = (shown(text) for text in texts if self._rendering.finds_control(shown(text)))
        return sum(text in written or json.dumps(text, ensure_ascii=False)[1:-1] in written for text in forging)

    def _compare(self, prompt: Prompt, field: Field, text: str) -> None:
        """Another text in the same field, or another field, must not have the same ids."""
        ids = tuple(prompt.ids)
        other_field, other = self._seen.setdefault(ids, (field.name, text))
        if (other_field, other) == (field.name, text) or (other_field == field.name and self._same(other, text)):
            return
        self._report.collisions += 1
        self._report.add_example(f"the same ids: {other!r} as {other_field} and {text!r} as {field.name}")

    def _same(self, first: str, second: str) -> bool:
        """Whether texts differ only in what templates trim and the tokenizer's normaliser folds."""
        plain = self._recipe.plain_ids
        return plain(first.strip()) == plain(second.strip())

    def _encoded(self, placed: Placed) -> Prompt:
        return self._recipe.encode_chat(placed.conversation, continue_final=placed.continue_final)

    def _spelled(self, placed: Placed) -> Spelled:
        return self._rendering.spell(self._recipe.pieces(placed.conversation, continue_final=placed.continue_final))

    def _controls(self, prompt: Prompt) -> list[int]:
        control = self._recipe.vocabulary.control_ids
        return [token for token in prompt.ids if token in control]


def _chunks(texts: Sequence[Typed]) -> Iterator[list[Typed]]:
    rest = iter(texts)
    while chunk := list(islice(rest, _TOGETHER)):
        yield chunk


def _joined(texts: Sequence[Typed]) -> Typed:
    """All texts with the mark before, between and behind them."""
    if isinstance(texts[0], str):
        return _BETWEEN + _BETWEEN.join(map(shown, texts)) + _BETWEEN
    parts = [part for text in texts for part in (_BETWEEN + text[0], *text[1:])]
    return [*parts, _BETWEEN]
