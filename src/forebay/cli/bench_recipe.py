"""`forebay bench recipe`: its options, progress and report. The measuring is in `forebay.bench.recipe`."""

from __future__ import annotations

from typing import Any

from forebay.cli import console
from forebay.cli.options import DEFAULT_MODEL, Flag, Positive


def recipe(model: str = DEFAULT_MODEL, *, runs: Positive = 9, json: Flag = False) -> int:
    """Measure how fast conversations become token ids, and answers become text and calls.

    Parameters
    ----------
    model
        As for forebay serve; also a folder that has only a tokenizer's files.
    runs
        Conversations of 100,000 characters to encode; the median is reported.
    json
        Print the report as JSON.
    """
    import json as json_module

    from forebay.bench.recipe import RecipePlan, measure_recipe
    from forebay.cli.recipe_model import load_parts
    from forebay.recipe import Recipe

    with console.stages("reading the tokenizer") as report:
        name, parts = load_parts(model)
        figures = {"model": name, **measure_recipe(Recipe(parts), parts, RecipePlan(runs=runs), report)}
    console.say(json_module.dumps(figures, indent=2) if json else table(figures))
    return 0


def table(figures: dict[str, Any]) -> str:
    """The figures for people."""
    times = figures["times_transformers"]
    beside = f"{times:g} times as fast as transformers {figures['transformers']}" if times else figures["transformers"]
    rows = (
        ("encoding 100,000 characters", f"{figures['encode_ms_100k_chars']:g} ms; {beside}"),
        ("its next turn", f"{figures['next_turn_ms']:g} ms"),
        ("reading an answer", f"{figures['parse_us_per_token']:g} µs a token ({figures['tool_format']})"),
    )
    head = f"{figures['model']}, template {figures['template']}; medians of {figures['runs']} runs"
    return "\n".join([head, "", *(f"{name + ':':<29}{value}" for name, value in rows)])
