"""Reasoning longer than its budget is ended by the grammar; what comes behind it is as free as it was."""

from __future__ import annotations

import random
from typing import Final

import pytest
from tests.recipe.parsers.answers import END, ids, spec, vocabulary

from forebay.core.grammar import GrammarSpec
from forebay.recipe.grammar import GrammarCompiler, Matcher, allowed_tokens, can_bound, grammar_tokens, within_budget
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
