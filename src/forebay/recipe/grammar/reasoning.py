"""Lets a model reason before its constrained answer, as its own markers say, and bounds how long."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forebay.core.grammar import GrammarSpec
from forebay.recipe.grammar.lark import harmony_analysis
from forebay.recipe.grammar.source import THOUGHT
from forebay.recipe.parsers.harmony import opened_channel
from forebay.recipe.parsers.reasoning import ReasoningMarkers, opened_by_prompt
from forebay.recipe.parsers.spec import ParserSpec, ToolFormat
from forebay.recipe.vocabulary import Vocabulary


def after_reasoning(grammar: GrammarSpec, parsers: ParserSpec, prompt_ids: Sequence[int]) -> GrammarSpec:
    """The grammar for the answer to a prompt: behind reasoning that the prompt has begun, or that the model may begin.

    Unchanged where the model does not reason, where the prompt has closed the reasoning, and where the markers are no
    tokens of the model.
    """
    markers = parsers.reasoning
    if markers is None:
        return grammar
    begin, end = (parsers.vocabulary.control.get(text) for text in (markers.begin, markers.end))
    if begin is None or end is None:
        return grammar
    if opened_by_prompt(prompt_ids, markers, parsers.vocabulary):
        return msgspec.structs.replace(grammar, after=end, begin=None)
    if opened_by_prompt(prompt_ids, ReasoningMarkers(markers.end, markers.begin), parsers.vocabulary):
        return grammar
    return msgspec.structs.replace(grammar, after=end, begin=begin)


def can_bound(parsers: ParserSpec) -> bool:
    """Whether a model's reasoning can be held to a budget: it stands between markers that are tokens of the model, or
    in a channel."""
    if parsers.tool_format is ToolFormat.HARMONY:
        return True
    markers, control = parsers.reasoning, parsers.vocabulary.control
    return markers is not None and markers.begin in control and markers.end in control


def within_budget(
    grammar: GrammarSpec | None, parsers: ParserSpec, prompt_ids: Sequence[int], budget: int
) -> GrammarSpec | None:
    """`after_reasoning`, with reasoning of at most `budget` tokens; None is an answer of any kind.

    An answer of any kind then reasons once: it can't begin again behind the end. Unchanged where the answer can't
    reason between markers at all, so that there is nothing to bound.
    """
    if parsers.tool_format is ToolFormat.HARMONY:
        if opened_channel(prompt_ids, parsers.vocabulary) is not None:
            return grammar
        free = GrammarSpec("lark", _free_harmony(parsers.vocabulary))
        return msgspec.structs.replace(free if grammar is None else grammar, budget=budget)
    if parsers.reasoning is None:
        return grammar
    begin = parsers.vocabulary.control.get(parsers.reasoning.begin)
    free = GrammarSpec("lark", f"start: (<[^{begin}]>)*")
    bounded = after_reasoning(free if grammar is None else grammar, parsers, prompt_ids)
    if begin is None or bounded.after is None:
        return grammar
    return msgspec.structs.replace(bounded, budget=budget)


def _free_harmony(vocabulary: Vocabulary) -> str:
    """Any answer in harmony's format that begins with its reasoning or has none: its other messages are not that."""
    channel = vocabulary.control["<|channel|>"]
    rest = f'(TO)? (<[{channel}]> ("final" | "commentary") (<[^{channel}]>)*)+'
    return f"start: ({harmony_analysis(vocabulary)})? {rest}\nTO: / to=[^ <]+/\n{THOUGHT}"
