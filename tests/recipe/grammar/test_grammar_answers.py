"""Answers that may be text or calls, in every format: what the grammar lets through is what was asked for."""

from __future__ import annotations

import json

import pytest
from tests.recipe.grammar.test_grammar_tools import FORMATS, TOOLS, check, walk
from tests.recipe.parsers.answers import END, ids, parser, read, spec, vocabulary

from forebay.core.grammar import GrammarSpec
from forebay.recipe.grammar import GrammarCompiler, answer_grammar, grammar_tokens
from forebay.recipe.grammar.matcher import DeadEndError
from forebay.recipe.parsers import AnswerEnd, TextDelta

FORM = GrammarSpec("json_schema", json.dumps({"enum": [{"sky": "clear"}]}))


def accepts(name: str, grammar: GrammarSpec, answer: str, *, tokens: bool) -> bool:
    vocab = vocabulary(name, tokens=tokens)
    matcher = GrammarCompiler(grammar_tokens(vocab, (vocab.control[END],))).matcher(grammar)
    try:
        matcher.follow(ids(name, answer, tokens=tokens))
    except DeadEndError:
        return False
    return matcher.accepting


@pytest.mark.parametrize("name", FORMATS)
def test_text_of_a_form_or_calls(name: str) -> None:
    grammar = answer_grammar(spec(name), FORM, TOOLS)
    assert grammar is not None
    ends = set()
    for seed in range(14):
        events, end = read(parser(name), walk(name, grammar, seed))
        ends.add(end)
        if not check(events):
            assert json.loads("".join(e.text for e in events if isinstance(e, TextDelta))) == {"sky": "clear"}
    assert AnswerEnd.TOOL_CALLS in ends


@pytest.mark.parametrize("name", FORMATS)
def test_a_form_alone(name: str) -> None:
    grammar = answer_grammar(spec(name), FORM, [])
    assert grammar is not None
    events, end = read(parser(name), walk(name, grammar, 1))
    assert end is AnswerEnd.STOP
    assert json.loads("".join(e.text for e in events if isinstance(e, TextDelta))) == {"sky": "clear"}


CALL = '{"name": "run", "KEY": {}}'
WRONG = '{"name": "rum", "KEY": {}}'


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize(
    ("name", "answer", "allowed"),
    [
        ("hermes", "All is well.", True),
        ("hermes", "", True),
        ("hermes", f"Well.\n⟦<tool_call>⟧\n{CALL}\n⟦</tool_call>⟧", True),
        ("hermes", f"⟦<tool_call>⟧\n{CALL}\n⟦</tool_call>⟧\n⟦<tool_call>⟧\n{CALL}\n⟦</tool_call>⟧", True),
        ("hermes", f"⟦<tool_call>⟧\n{WRONG}\n⟦</tool_call>⟧", False),
        ("hermes", "⟦<tool_call>⟧", False),
        ("llama3", "All is well: {}", True),
        ("llama3", CALL, True),
        ("llama3", WRONG, False),
        ("llama3", " {", False),
    ],
)
def test_a_call_is_held_to_its_schema_once_it_begins(name: str, answer: str, allowed: bool, tokens: bool) -> None:
    grammar = answer_grammar(spec(name, tokens=tokens), None, TOOLS)
    assert grammar is not None
    key = "arguments" if name == "hermes" else "parameters"
    assert accepts(name, grammar, answer.replace("KEY", key), tokens=tokens) is allowed


def test_spelled_markers_within_a_line_are_text() -> None:
    grammar = answer_grammar(spec("hermes", tokens=False), None, TOOLS)
    assert grammar is not None
    assert accepts("hermes", grammar, "They write <tool_call> first.", tokens=False)


def test_harmony_says_something_or_calls() -> None:
    grammar = answer_grammar(spec("harmony"), None, TOOLS)
    assert grammar is not None
    said = "⟦<|channel|>⟧analysis⟦<|message|>⟧Hm⟦<|end|>⟧⟦<|start|>⟧assistant⟦<|channel|>⟧final⟦<|message|>⟧Well."
    assert accepts("harmony", grammar, said, tokens=True)
    assert not accepts("harmony", grammar, "Well.", tokens=True)


def test_one_call_only() -> None:
    call = f"⟦<tool_call>⟧\n{CALL}\n⟦</tool_call>⟧".replace("KEY", "arguments")
    for tokens in (True, False):
        grammar = answer_grammar(spec("hermes", tokens=tokens), None, TOOLS, parallel=False)
        assert grammar is not None
        assert accepts("hermes", grammar, call, tokens=tokens)
        assert not accepts("hermes", grammar, f"{call}\n{call}", tokens=tokens)


def test_nothing_asked_is_nothing_constrained() -> None:
    assert answer_grammar(spec("hermes"), None, []) is None


def test_expressions_and_grammars_are_the_whole_answer() -> None:
    for form in (GrammarSpec("regex", "a+"), GrammarSpec("lark", 'start: "a"')):
        assert answer_grammar(spec("hermes"), form, TOOLS) is form


def test_formats_without_anything_that_marks_a_call_say_so() -> None:
    assert answer_grammar(spec("dsml", tokens=False), None, TOOLS) is None
