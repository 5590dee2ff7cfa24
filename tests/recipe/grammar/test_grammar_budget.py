"""Reasoning longer than its budget is ended by the grammar; what comes behind it is as free as it was."""

from __future__ import annotations

import json
import random
import re
from typing import Final

import pytest
from tests.recipe.parsers.answers import END, ids, spec, vocabulary

from forebay.core.grammar import GrammarSpec
from forebay.recipe.grammar import (
    GrammarCompiler,
    Matcher,
    allowed_tokens,
    answer_grammar,
    can_bound,
    grammar_tokens,
    within_budget,
)
from forebay.recipe.grammar.source import THOUGHT
from forebay.recipe.grammar.source import bounded as bounded_text
from forebay.recipe.parsers import ParserSpec

VOCABULARY: Final = vocabulary("hermes")
BEGIN, THINK_END, CALL, STOP = (VOCABULARY.control[text] for text in ("<think>", "</think>", "<tool_call>", END))
OPENED: Final = tuple(ids("hermes", "⟦<think>⟧\n"))
CLOSED: Final = (*OPENED, *ids("hermes", "\n⟦</think>⟧\n\n"))


def bounded(grammar: GrammarSpec | None, prompt: tuple[int, ...], budget: int) -> GrammarSpec:
    """The grammar, which there has to be."""
    made = within_budget(grammar, spec("hermes"), prompt, budget)
    assert made is not None
    return made


def beginning(grammar: GrammarSpec) -> tuple[Matcher, int]:
    compiler = GrammarCompiler(grammar_tokens(VOCABULARY, (STOP,)))
    return compiler.matcher(grammar), compiler.vocab_size


def allowed(matcher: Matcher, width: int) -> list[int]:
    """The tokens that may come next."""
    return [token for token, may in enumerate(allowed_tokens([matcher], width)[0].tolist()) if may]


@pytest.mark.parametrize("budget", [1, 7, 40])
@pytest.mark.parametrize("prompt", [(), OPENED])
def test_a_model_that_never_stops_reasoning_is_stopped(prompt: tuple[int, ...], budget: int) -> None:
    matcher, width = beginning(bounded(None, prompt, budget))
    output: list[int] = [] if prompt else [BEGIN]
    draw = random.Random(budget)
    while True:
        matcher.follow(output)
        choices = [token for token in allowed(matcher, width) if token != THINK_END]
        if not choices:
            break
        output.append(draw.choice(choices))
    assert len(output) - (not prompt) == budget
    matcher.follow([*output, THINK_END])
    after = allowed(matcher, width)
    assert {CALL, STOP, *ids("hermes", "a")} <= set(after)
    assert BEGIN not in after


def test_reasoning_may_be_short_or_left_out() -> None:
    matcher, width = beginning(bounded(None, (), 20))
    assert {BEGIN, CALL, STOP, *ids("hermes", "a")} <= set(allowed(matcher, width))
    matcher.follow([BEGIN, *ids("hermes", "so")])
    assert THINK_END in allowed(matcher, width)
    assert STOP not in allowed(matcher, width)


def test_the_answer_keeps_its_own_grammar() -> None:
    matcher, width = beginning(bounded(GrammarSpec("regex", "(yes|no)"), OPENED, 2))
    matcher.follow(ids("hermes", "ab"))
    assert allowed(matcher, width) == [THINK_END]
    matcher.follow(ids("hermes", "ab⟦</think>⟧"))
    assert set(allowed(matcher, width)) == set(ids("hermes", "yn \n"))


def test_where_nothing_can_be_bounded_the_grammar_stays() -> None:
    grammar = GrammarSpec("json_object")
    assert within_budget(grammar, spec("hermes"), CLOSED, 5) == grammar
    assert within_budget(None, spec("hermes"), CLOSED, 5) is None
    without = ParserSpec.of("chatml", vocabulary("hermes", tokens=False))
    assert within_budget(None, without, (), 5) is None
    assert can_bound(spec("hermes"))
    assert not can_bound(without)
    assert not can_bound(spec("hermes", tokens=False))


HARMONY: Final = vocabulary("harmony")


def spoken(grammar: GrammarSpec | None, budget: int, wanted: str) -> str:
    """The wanted answer in harmony's format, as far as the grammar lets it: what it forbids is skipped, and what is
    forced comes."""
    held = within_budget(grammar, spec("harmony"), (), budget)
    assert held is not None
    compiler = GrammarCompiler(grammar_tokens(HARMONY, (HARMONY.control[END],)))
    matcher, output = compiler.matcher(held), list[int]()
    for token in ids("harmony", wanted):
        while True:
            matcher.follow(output)
            may = allowed(matcher, compiler.vocab_size)
            if len(may) > 1 or may == [token]:
                break
            output.append(may[0])
        if token in may:
            output.append(token)
    return b"".join(map(HARMONY.token_bytes, output)).decode()


def test_an_analysis_has_its_budget_too() -> None:
    head, final = "<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>"
    thought = "⟦<|channel|>⟧analysis⟦<|message|>⟧abcdefgh"
    answer = f"{thought}⟦<|end|>⟧⟦<|start|>⟧assistant⟦<|channel|>⟧final⟦<|message|>⟧Yes."
    assert spoken(None, 9, answer) == f"{head}abcdefgh<|end|>{final}Yes."
    assert spoken(None, 4, f"{thought}⟦<|channel|>⟧final⟦<|message|>⟧Yes.") == f"{head}abcd<|end|>{final}Yes."
    again = "⟦<|channel|>⟧analysis⟦<|message|>⟧more"
    assert "analysis" not in spoken(None, 4, f"{thought}{again}").partition("<|end|>")[2]
    call = "⟦<|channel|>⟧commentary to=functions.look ⟦<|constrain|>⟧json⟦<|message|>⟧{}"
    assert spoken(None, 4, call) == re.sub("[⟦⟧]", "", call)
    begun = ids("harmony", "⟦<|start|>⟧assistant⟦<|channel|>⟧final⟦<|message|>⟧So")
    assert within_budget(None, spec("harmony"), begun, 4) is None
    assert can_bound(spec("harmony"))


def test_an_analysis_before_a_form_has_its_budget_too() -> None:
    form = answer_grammar(spec("harmony"), GrammarSpec("json_object"), [])
    said = spoken(form, 3, "⟦<|channel|>⟧analysis⟦<|message|>⟧abcdef⟦<|channel|>⟧final⟦<|message|>⟧{}")
    assert said.startswith("<|channel|>analysis<|message|>abc<|end|><|start|>assistant<|channel|>")
    assert said.endswith("<|message|>{}")


def test_a_schema_that_spells_the_rule_of_reasoning_stays() -> None:
    form = answer_grammar(spec("harmony"), GrammarSpec("json_schema", json.dumps({"const": f"\n{THOUGHT}\n"})), [])
    assert form is not None
    assert bounded_text(form.text, 7).count("max_tokens") == 1
