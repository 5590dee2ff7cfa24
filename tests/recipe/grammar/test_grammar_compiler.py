"""Grammars: what they allow, where they may end, and how those are refused that can't be compiled."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.recipe.parsers.answers import END, vocabulary

from forebay.core.errors import InvalidRequestError, UnsupportedModelError
from forebay.core.grammar import GrammarSpec
from forebay.recipe.grammar import DeadEndError, GrammarCompiler, Matcher, allowed_tokens, grammar_tokens

VOCABULARY = vocabulary("hermes")
STOP = VOCABULARY.control[END]


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    """For the vocabulary of bytes."""
    return GrammarCompiler(grammar_tokens(VOCABULARY, (STOP,)), kept=2)


def next_bytes(matcher: Matcher, width: int) -> tuple[set[bytes], bool]:
    """What may follow: the bytes of plain tokens, and whether the answer may end. No other control token may."""
    [row] = allowed_tokens([matcher], width)
    allowed = [token for token, may in enumerate(row.tolist()) if may]
    assert {token for token in allowed if VOCABULARY.is_control(token)} <= {STOP}
    return {VOCABULARY.token_bytes(token) for token in allowed if token != STOP}, STOP in allowed


def test_an_answer_may_end_only_where_the_grammar_accepts(compiler: GrammarCompiler) -> None:
    matcher = compiler.matcher(GrammarSpec("regex", "ab?"))
    assert next_bytes(matcher, compiler.vocab_size) == ({b"a"}, False)
    matcher.follow(VOCABULARY.plain_ids("a"))
    assert next_bytes(matcher, compiler.vocab_size) == ({b"b"}, True)
    matcher.follow(VOCABULARY.plain_ids("ab"))
    assert next_bytes(matcher, compiler.vocab_size) == (set(), True)
    assert matcher.complete


def test_a_matcher_follows_whatever_the_ids_have_become(compiler: GrammarCompiler) -> None:
    matcher = compiler.matcher(GrammarSpec("regex", "(ab|cd)e"))
    matcher.follow(VOCABULARY.plain_ids("ab"))
    matcher.follow(VOCABULARY.plain_ids("c"))
    assert next_bytes(matcher, compiler.vocab_size) == ({b"d"}, False)
    matcher.follow(VOCABULARY.plain_ids("cde"))
    assert next_bytes(matcher, compiler.vocab_size) == (set(), True)
    matcher.follow([*VOCABULARY.plain_ids("cde"), STOP, STOP])
    assert next_bytes(matcher, compiler.vocab_size) == (set(), True)


def test_ids_outside_the_grammar_are_a_dead_end(compiler: GrammarCompiler) -> None:
    matcher = compiler.matcher(GrammarSpec("regex", "ab"))
    with pytest.raises(DeadEndError):
        matcher.follow(VOCABULARY.plain_ids("ax"))
    matcher.follow(VOCABULARY.plain_ids("a"))
    assert next_bytes(matcher, compiler.vocab_size) == ({b"b"}, False)


def test_masks_of_many_answers_are_those_of_each(compiler: GrammarCompiler) -> None:
    matchers = [compiler.matcher(GrammarSpec("regex", pattern)) for pattern in ("a", "b+", "[0-9]")]
    together = allowed_tokens(matchers, compiler.vocab_size)
    alone = [allowed_tokens([matcher], compiler.vocab_size)[0] for matcher in matchers]
    assert [row.tolist() for row in together] == [row.tolist() for row in alone]


def test_any_json_object(compiler: GrammarCompiler) -> None:
    matcher = compiler.matcher(GrammarSpec("json_object"))
    matcher.follow(VOCABULARY.plain_ids('{"a": [1.10, {"é": null}],\n  "b": "\\u00e9"}'))
    assert matcher.accepting
    assert next_bytes(compiler.matcher(GrammarSpec("json_object")), compiler.vocab_size)[0] == {b"{"}


def test_whitespace_is_bounded(compiler: GrammarCompiler) -> None:
    matcher = compiler.matcher(GrammarSpec("json_object"))
    with pytest.raises(DeadEndError):
        matcher.follow(VOCABULARY.plain_ids("{" + " " * 100))


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"properties": {"a/b": {"items": {"anyOf": [{}, {"not": {}}]}}}}, "at /properties/a~1b/items/anyOf/1"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "objec"}}}, "at /$defs/x"),
        ({"type": "objec"}, "at its root"),
        ({"properties": {"a": {"pattern": "a(?=b)"}}}, "at /properties/a"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "at /properties/a"),
    ],
)
def test_a_schema_that_does_not_compile_is_refused_with_the_place(
    compiler: GrammarCompiler, schema: dict[str, Any], where: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        compiler.check(GrammarSpec("json_schema", json.dumps(schema)), "response_format.json_schema.schema")
    assert where in caught.value.message
    assert caught.value.param == "response_format.json_schema.schema"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (GrammarSpec("json_schema", "[1]"), "not a JSON object"),
        (GrammarSpec("json_schema", "{"), "not a JSON object"),
        (GrammarSpec("regex", "a(b"), "unclosed group"),
        (GrammarSpec("lark", "start: nowhere"), "nowhere"),
        (GrammarSpec("regex", "a" * 300_000), "at most"),
    ],
)
def test_other_grammars_are_refused_with_the_reason(compiler: GrammarCompiler, spec: GrammarSpec, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        compiler.check(spec)


def test_compiled_grammars_are_kept_up_to_a_bound(compiler: GrammarCompiler) -> None:
    for pattern in ("a", "b", "a", "c"):
        compiler.check(GrammarSpec("regex", pattern))
    assert [spec.text for spec in compiler.kept] == ["a", "c"]


def test_a_model_without_an_end_is_refused() -> None:
    with pytest.raises(UnsupportedModelError):
        grammar_tokens(VOCABULARY, ())


def test_ids_beyond_the_vocabulary_are_never_allowed() -> None:
    wide = GrammarCompiler(grammar_tokens(VOCABULARY, (STOP,), VOCABULARY.size + 100))
    row = allowed_tokens([wide.matcher(GrammarSpec("json_object"))], wide.vocab_size)[0]
    assert len(row) >= VOCABULARY.size + 100
    assert not row[VOCABULARY.size :].any()
