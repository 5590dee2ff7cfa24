"""Lets a model reason before its constrained answer, as its own markers say."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forebay.core.grammar import GrammarSpec
from forebay.recipe.parsers.reasoning import ReasoningMarkers, opened_by_prompt
from forebay.recipe.parsers.spec import ParserSpec


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
