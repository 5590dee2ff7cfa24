"""From what was measured to the report: JSON, and the same as a Markdown table. Pure but for describing the machine."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from typing import Any

import psutil

from forebay.bench.compare.comparison import Comparison
from forebay.bench.compare.limits import limit
from forebay.bench.compare.rows import OURS, PEERS, Row
from forebay.bench.compare.turns import best_peer, failures, goal_met, median_loads, medians, times_as_good
from forebay.kernels.cpu import cpu_info

NOTHING = "-"
"""A cell of the table without a value."""


def machine() -> dict[str, Any]:
    """The processor, memory and system that were measured on."""
    cpu = cpu_info()
    return {
        "cpu": cpu.model,
        "cores": cpu.usable_cores,
        "flags": list(cpu.flags),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def report(comparison: Comparison) -> dict[str, Any]:
    """The whole report as plain data."""
    by_side = {name: medians(turns) for name, turns in comparison.turns.items()}
    bounds = comparison.bounds()
    rows = {}
    for row in comparison.rows:
        values = {name: found[row.name] for name, found in by_side.items() if row.name in found}
        best = None if bounds is None else limit(row, bounds, comparison.setup.load)
        rows[row.name] = _row(row, values, best) | {"left_out": _left_out(row, comparison, values)}
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "model": comparison.setup.model,
        "turns": {name: len(turns) for name, turns in comparison.turns.items()},
        "machine": machine() | _measured_limits(comparison),
        "sides": comparison.described,
        "bits_per_parameter": _bits(comparison),
        "rows": rows,
        "loads": {name: median_loads(turns) for name, turns in comparison.turns.items()},
        "by_turn": {name: [turn.values for turn in turns] for name, turns in comparison.turns.items()},
    }


def _row(row: Row, values: dict[str, float], best: float | None) -> dict[str, Any]:
    ours, peer = values.get(OURS), best_peer(row, values)
    share = None if ours is None or best is None else times_as_good(row, ours, best)
    ratio = None if ours is None or peer is None else times_as_good(row, ours, values[peer])
    return {
        "title": row.title,
        "unit": row.unit,
        "better": "higher" if row.higher_is_better else "lower",
        **{name: _rounded(value) for name, value in values.items()},
        "best_peer": peer,
        "ratio_to_best": _rounded(ratio),
        "limit": _rounded(best),
        "of_limit": _rounded(share),
        "goal": goal_text(row),
        "goal_met": goal_met(row, values, share),
    }


def _left_out(row: Row, comparison: Comparison, values: dict[str, float]) -> dict[str, str]:
    """By side, why this row has no value of it."""
    reasons = dict(comparison.left_out)
    for name, turns in comparison.turns.items():
        if name not in values:
            reasons[name] = failures(turns).get(row.name, "no turn was taken")
    return reasons


def _measured_limits(comparison: Comparison) -> dict[str, float]:
    bounds = comparison.bounds()
    return (
        {} if bounds is None else {"gemm_gflops": round(bounds.gemm_gflops, 1), "read_gbps": round(bounds.read_gbps, 1)}
    )


def _bits(comparison: Comparison) -> float | None:
    """Bits that our side's weights take in memory, on average; None before our first turn."""
    extras = [turn.extras for turn in comparison.turns[OURS] if "parameters" in turn.extras]
    return _rounded(8 * extras[-1]["weight_bytes"] / extras[-1]["parameters"]) if extras else None


def _rounded(value: float | None) -> float | None:
    """Four digits that count."""
    return None if value is None else float(f"{value:.4g}")


def goal_text(row: Row) -> str:
    """The row's goal in words; empty when it has none."""
    parts = [f"{factor:.3g}x {name}" for name, factor in row.goal.times.items()]
    if row.goal.below is not None:
        parts.append(f"under {row.goal.below:g} {row.unit}")
    if row.goal.of_limit is not None:
        parts.append(f"{row.goal.of_limit:.0%} of the limit")
    return ", ".join(parts)


def markdown(figures: dict[str, Any]) -> str:
    """The report as a Markdown table with its circumstances below."""
    names = [OURS, *PEERS]
    head = ["work", "unit", *names, "times as good as the best peer", "limit", "of the limit", "goal", "met"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in figures["rows"].values():
        cells = [row["title"], row["unit"], *(_cell(row.get(name)) for name in names)]
        share = row["of_limit"]
        cells += [_cell(row["ratio_to_best"]), _cell(row["limit"]), NOTHING if share is None else f"{share:.0%}"]
        cells += [row["goal"] or NOTHING, {True: "yes", False: "no", None: NOTHING}[row["goal_met"]]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_circumstances(figures)]) + "\n"


def _cell(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def _circumstances(figures: dict[str, Any]) -> list[str]:
    box, turns = figures["machine"], figures["turns"][OURS]
    limits = (
        f", matrix products {box['gemm_gflops']} GFLOP/s, memory {box['read_gbps']} GB/s" if "read_gbps" in box else ""
    )
    lines = [
        f"{figures['date']}, model {figures['model']}, medians of {turns} turn{'s' * (turns != 1)}.",
        f"{box['cpu']}, {box['cores']} cores, {box['memory_gib']} GiB, {box['system']}{limits}.",
        "",
    ]
    if figures["bits_per_parameter"] is not None:
        lines[-1:] = [f"Our weights take {figures['bits_per_parameter']:g} bits a parameter in memory.", ""]
    for name, side in figures["sides"].items():
        lines.append(f"- {name} {side['version']}, weights {side['weights']}: `{side['server']}`")
    reasons: dict[tuple[str, str], list[str]] = {}
    for row_name, row in figures["rows"].items():
        for name, reason in row["left_out"].items():
            reasons.setdefault((name, reason), []).append(row_name)
    for (name, reason), rows in reasons.items():
        which = "every row" if len(rows) == len(figures["rows"]) else ", ".join(rows)
        lines.append(f"- {name} is left out of {which}: {reason}")
    return lines
