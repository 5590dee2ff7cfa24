"""Stop strings and the schemas of answers: a client's text that never reaches a prompt, but that answers are held to.

A control token must not stand for its spelling there either: it may neither complete a stop string nor fill a place
that a schema gives to text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from forebay.core.errors import InvalidRequestError
from forebay.core.grammar import GrammarSpec
from forebay.recipe.corpus_report import CorpusReport, FieldCount
from forebay.recipe.grammar import DeadEndError, GrammarCompiler, Matcher, allowed_tokens, grammar_tokens
from forebay.recipe.recipe import Recipe
from forebay.recipe.text_stream import TextStream


def try_answers(recipe: Recipe, spellings: Sequence[str], report: CorpusReport) -> None:
    """Try each spelling as a stop string and as a value of a response schema."""
    _try_stops(recipe, spellings, report)
    _try_schema(recipe, spellings, report)


def _try_stops(recipe: Recipe, spellings: Sequence[str], report: CorpusReport) -> None:
    count = report.fields["stop string"] = FieldCount()
    for spelling in spellings:
        count.cases += 1
        plain = TextStream(recipe.detokenizer(), [spelling])
        typed = plain.push(recipe.plain_ids("a" + spelling)).stopped == spelling
        control = recipe.vocabulary.control.get(spelling)
        if control is None:
            continue
        token = TextStream(recipe.detokenizer(), [spelling])
        if not typed or token.push([control]).stopped is not None:
            count.forged += 1
            report.add_example(f"forged: a stop string {spelling!r}")


def _try_schema(recipe: Recipe, spellings: Sequence[str], report: CorpusReport) -> None:
    count = report.fields["response schema"] = FieldCount()
    if not recipe.stop_token_ids:
        count.why_refused, count.refused = "The model names no token that ends an answer.", len(spellings)
        return
    compiler = GrammarCompiler(grammar_tokens(recipe.vocabulary, recipe.stop_token_ids))
    for spelling in spellings:
        schema = {"type": "object", "properties": {spelling: {"const": spelling}}, "required": [spelling]}
        try:
            matcher = compiler.matcher(GrammarSpec("json_schema", json.dumps(schema | {"additionalProperties": False})))
            opened = _opens_control(recipe, matcher, json.dumps({spelling: spelling}, ensure_ascii=False))
        except (InvalidRequestError, DeadEndError) as error:
            count.refused, count.why_refused = count.refused + 1, str(error)
            continue
        count.cases += 1
        if opened:
            count.forged += 1
            report.add_example(f"forged: a schema's key and value {spelling!r}")


def _opens_control(recipe: Recipe, matcher: Matcher, answer: str) -> bool:
    """Whether the schema allows a control token anywhere before the answer is complete."""
    control = sorted(recipe.vocabulary.control_ids)
    ids = recipe.vocabulary.plain_ids(answer, continued=True)
    for length in range(len(ids)):
        matcher.follow(ids[:length])
        if not matcher.accepting and allowed_tokens([matcher], recipe.vocab_size)[0, control].any():
            return True
    return False
