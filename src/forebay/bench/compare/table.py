"""Shows the report as a Markdown table with its circumstances below. Pure; it computes no figure."""

from __future__ import annotations

from typing import Any

from forebay.bench.compare.rows import OURS, OURS_EXACT, PEERS

NOTHING = "-"
"""A cell without a value."""


def markdown(figures: dict[str, Any]) -> str:
    """The report as a Markdown table with its circumstances below."""
    both = OURS_EXACT in figures["sides"]
    names = [OURS, *([OURS_EXACT] if both else []), *PEERS]
    judged = ["times as good as the best peer", "limit", "of the limit", "met"]
    of_exact = [f"{OURS_EXACT}: {title}" for title in judged] if both else []
    head = ["work", "unit", *names, *judged[:-1], "goal", judged[-1], *of_exact]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in figures["rows"].values():
        *beside, met = _judged(row)
        cells = [
            row["title"],
            row["unit"],
            *(_figure(row, name) for name in names),
            *beside,
            row["goal"] or NOTHING,
            met,
        ]
        cells += _judged(row.get("fp32")) if both else []
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_circumstances(figures)]) + "\n"


def _judged(told: dict[str, Any] | None) -> list[str]:
    """How one of our sides stands in a row: its ratio, limit, share of it, and whether the goal is met."""
    if told is None:
        return [NOTHING] * 4
    share, met = told["of_limit"], {True: "yes", False: "no", None: NOTHING}[told["goal_met"]]
    return [_cell(told["ratio_to_best"]), _cell(told["limit"]), NOTHING if share is None else f"{share:.0%}", met]


def _figure(row: dict[str, Any], name: str) -> str:
    """A median, with the range of its turns when there were several."""
    if name not in row:
        return NOTHING
    span = f" ({_cell(row['min'][name])} to {_cell(row['max'][name])})" if row["turns"][name] > 1 else ""
    return _cell(row[name]) + span


def _cell(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def _circumstances(figures: dict[str, Any]) -> list[str]:
    box = figures["machine"]
    limits = (
        f", matrix products {box['gemm_gflops']} GFLOP/s (floating point: {box['float_gflops']})"
        f", memory {box['read_gbps']} GB/s"
        if "read_gbps" in box
        else ""
    )
    lines = [
        f"{figures['date']}, model {figures['model']}. {_turns(figures)}",
        f"{box['cpu']}, {box['cores']} cores, {box['memory_gib']} GiB, {box['system']}{limits}.",
    ]
    if figures["bits_per_parameter"] is not None:
        lines.append(f"Our weights take {figures['bits_per_parameter']:g} bits a parameter in memory.")
    lines.append("")
    for name, side in figures["sides"].items():
        lines.append(f"- {name} {side['version']}, weights {side['weights']}: `{side['server']}`")
    return lines + _absences(figures)


def _turns(figures: dict[str, Any]) -> str:
    """How many turns the figures come from: what most have, and each that has fewer."""
    counts = {(row, name): n for row, told in figures["rows"].items() for name, n in told["turns"].items()}
    most = max(counts.values(), default=0)
    fewer: dict[tuple[str, int], list[str]] = {}
    for (row, name), count in counts.items():
        if count < most:
            fewer.setdefault((name, count), []).append(row)
    text = f"Medians of {most} turn{'s' * (most != 1)} (lowest to highest)"
    return text + "".join(f"; {count} of {name} in {', '.join(rows)}" for (name, count), rows in fewer.items()) + "."


def _absences(figures: dict[str, Any]) -> list[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for row_name, row in figures["rows"].items():
        for name, reason in row["left_out"].items():
            reasons.setdefault((name, reason), []).append(row_name)
    lines = []
    for (name, reason), rows in reasons.items():
        which = "every row" if len(rows) == len(figures["rows"]) else ", ".join(rows)
        lines.append(f"- {name} is left out of {which}: {reason}")
    return lines
