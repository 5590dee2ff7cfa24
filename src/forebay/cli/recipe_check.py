"""Carries out `forebay recipe check`: loads the recipe, which is the self-test, runs the corpus, and reports."""

from __future__ import annotations

import json
from typing import Any

from forebay.cli import console
from forebay.cli.recipe_model import load_recipe
from forebay.recipe import Recipe
from forebay.recipe.corpus_report import CorpusReport
from forebay.recipe.corpus_run import run_corpus
from forebay.recipe.corpus_tokens import classes_of

_SHOWN_CLASSES = 12


def run(model: str, *, as_json: bool) -> int:
    """Check and print. Raises ForebayError when the model is refused, with the token that leaks or the reason."""
    with console.stages("reading the tokenizer and testing it") as progress:
        name, recipe = load_recipe(model)
        report = run_corpus(recipe, progress)
    about = {"model": name, **described(recipe)}
    console.say(json.dumps({**report.as_json(), **about}, indent=2) if as_json else for_people(about, report))
    return 0 if report.clean else 1


def described(recipe: Recipe) -> dict[str, Any]:
    """What was chosen for this model."""
    reasoning = recipe.parsers.reasoning
    vocabulary = recipe.vocabulary
    return {
        "template": recipe.template_name,
        "tool_format": recipe.parsers.tool_format.value,
        "reasoning": None if reasoning is None else [reasoning.begin, reasoning.end],
        "vocabulary": recipe.vocab_size,
        "control_tokens": len(vocabulary.control),
        "control_classes": {each.pattern: len(each.spellings) for each in classes_of(vocabulary.control)},
        "plain_delimiters": sorted(recipe.delimiters),
        "ends": [recipe.token_text(token) for token in recipe.stop_token_ids],
    }


def for_people(about: dict[str, Any], report: CorpusReport) -> str:
    """The findings as lines of text."""
    lines = [f"{name + ':':<18}{value}" for name, value in _facts(about)]
    lines += ["", f"{'typed into':<26}{'cases':>8}{'refused':>9}{'forged':>8}{'forged by a string':>20}"]
    for name, count in report.fields.items():
        note = "" if count.shown or not count.cases or count.by_string else "   not in the prompt"
        note = f"   {count.why_refused}" if count.refused and not count.cases else note
        row = f"{name:<26}{count.cases:>8,}{count.refused:>9,}{count.forged:>8,}{count.by_string:>20,}{note}"
        lines.append(row)
    lines.append(f"{'whole turns':<26}{report.turns:>8,}{'':>9}{report.collisions:>8,}")
    return "\n".join([*lines, "", *_conclusion(report)])


def _facts(about: dict[str, Any]) -> list[tuple[str, str]]:
    classes = [f"{pattern} ({count})" if count > 1 else pattern for pattern, count in about["control_classes"].items()]
    more = f" and {len(classes) - _SHOWN_CLASSES} more kinds" if len(classes) > _SHOWN_CLASSES else ""
    reasoning = about["reasoning"]
    return [
        ("model", about["model"]),
        ("template", about["template"]),
        ("tool calls", about["tool_format"]),
        ("reasoning", " … ".join(reasoning) if reasoning else "no markers"),
        ("ends an answer", ", ".join(about["ends"]) or "nothing"),
        ("tokens", f"{about['vocabulary']:,}, of which {about['control_tokens']:,} are control"),
        ("control", ", ".join(classes[:_SHOWN_CLASSES]) + more),
        ("plain delimiters", ", ".join(map(repr, about["plain_delimiters"])) or "none"),
        ("self-test", "every control spelling, typed in every context, stays text"),
    ]


def _conclusion(report: CorpusReport) -> list[str]:
    lines = [
        f"{report.cases:,} cases: {report.forged:,} forged, {report.collisions:,} collisions. "
        f"Rendered as a string, {report.forged_by_string:,} of the same would forge control tokens."
    ]
    if report.joined:
        lines.append(
            f"This template itself puts messages into one turn in {', '.join(sorted(report.joined))}: the model can't "
            f"tell such messages from one with both texts."
        )
    return [*lines, *(f"! {example}" for example in report.examples)]
