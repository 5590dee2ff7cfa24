"""Measures the recipe by itself: encoding a long conversation, beside `transformers` where it is installed, its next
turn, and reading an answer token by token. No engine, no HTTP.

Each run has texts of its own, so what a tokenizer remembers from before is what it would remember of real ones: common
words, not the whole text.
"""

from __future__ import annotations

import gc
import importlib.util
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from forebay.bench.official import OfficialTemplate
from forebay.bench.texts import conversation_of, next_turn, text_of
from forebay.core.request import FinishReason
from forebay.recipe import Recipe
from forebay.recipe.parsers import Tool, ToolFormat
from forebay.recipe.vocabulary import TokenizerParts

Report = Callable[[str, float], None]
CHARS: Final = 100_000
"""Characters of the long conversation."""


@dataclass(frozen=True, slots=True)
class RecipePlan:
    """How much is measured."""

    chars: int = CHARS
    runs: int = 9
    answer_tokens: int = 4_000


@dataclass(frozen=True, slots=True)
class _Run:
    """Milliseconds of one run."""

    ours: float
    theirs: float | None
    next_turn: float


def measure_recipe(recipe: Recipe, parts: TokenizerParts, plan: RecipePlan, report: Report) -> dict[str, Any]:
    """All figures, medians of the runs after one that warms up. `parts` are those that the recipe was made of."""
    official, why_not = _official(parts)
    runs: list[_Run] = []
    for seed in range(plan.runs + 1):
        report("encoding long conversations", seed / (plan.runs + 1))
        runs.append(_run(recipe, official, plan, seed))
    report("reading answers", 0.9)
    parse = statistics.median(_parse_us(recipe, plan.answer_tokens, seed) for seed in range(5))
    ours = statistics.median(run.ours for run in runs[1:])
    theirs = [run.theirs for run in runs[1:] if run.theirs is not None]
    return {
        "encode_ms_100k_chars": round(ours * CHARS / plan.chars, 2),
        "times_transformers": round(statistics.median(theirs) / ours, 2) if theirs else None,
        "parse_us_per_token": round(parse, 2),
        "next_turn_ms": round(statistics.median(run.next_turn for run in runs[1:]), 2),
        "transformers": why_not if official is None else official.version,
        "template": recipe.template_name,
        "tool_format": recipe.parsers.tool_format.value,
        "chars": plan.chars,
        "runs": plan.runs,
    }


def _official(parts: TokenizerParts) -> tuple[OfficialTemplate | None, str]:
    """The other side, or why there is none."""
    if parts.chat_template is None:
        return None, "no comparison: the model has no Jinja template"
    if importlib.util.find_spec("transformers") is None:
        return None, "no comparison: transformers is not installed"
    return OfficialTemplate(parts), ""


def _run(recipe: Recipe, official: OfficialTemplate | None, plan: RecipePlan, seed: int) -> _Run:
    rng = random.Random(seed)
    conversation = conversation_of(plan.chars, rng)
    messages = [{"role": message.role, "content": message.content} for message in conversation.messages]
    ours = partial(recipe.encode_chat, conversation)
    if official is None:
        return _Run(_ms(ours), None, _ms(partial(recipe.encode_chat, next_turn(conversation, rng))))
    # The sides take turns at going first: the second finds the text in the processor's caches.
    theirs_first = _ms(partial(official.ids, messages)) if seed % 2 else None
    our_ms = _ms(ours)
    next_ms = _ms(partial(recipe.encode_chat, next_turn(conversation, rng)))
    return _Run(our_ms, _ms(partial(official.ids, messages)) if theirs_first is None else theirs_first, next_ms)


def _ms(work: Callable[[], object]) -> float:
    gc.collect()
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


def _parse_us(recipe: Recipe, tokens: int, seed: int) -> float:
    """Microseconds a token of reading an answer that reasons, speaks and calls a tool, one token at a time."""
    ids = _answer(recipe, tokens, random.Random(seed))
    parser = recipe.parsers.parser(recipe.detokenizer(), tools=[Tool("look")], stop_ids=recipe.stop_token_ids)
    gc.collect()
    started = time.perf_counter()
    for token in ids:
        parser.push((token,))
    parser.finish(FinishReason.STOP)
    return (time.perf_counter() - started) * 1e6 / len(ids)


def _answer(recipe: Recipe, tokens: int, rng: random.Random) -> list[int]:
    """About this many ids, as a model of this format would write them."""
    vocabulary = recipe.vocabulary

    def plain(text: str) -> list[int]:
        return vocabulary.plain_ids(text, continued=True)

    def between(begin: str, text: str, end: str) -> list[int]:
        known = begin in vocabulary.control and end in vocabulary.control
        return [vocabulary.control_id(begin), *plain(text), vocabulary.control_id(end)] if known else plain(text)

    pair = recipe.parsers.reasoning
    ids = between(pair.begin, text_of(tokens, rng), pair.end) if pair else []
    ids += plain(text_of(2 * tokens, rng))
    if recipe.parsers.tool_format is ToolFormat.HERMES:
        call = '{"name": "look", "arguments": {"place": "' + "north of here " * (tokens // 20) + '"}}'
        ids += between("<tool_call>", f"\n{call}\n", "</tool_call>")
    return ids
