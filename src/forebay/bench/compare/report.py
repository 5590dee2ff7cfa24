"""From what was measured to the report as plain data, which `table` shows. Pure but for describing the machine."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import psutil

from forebay.bench.compare.comparison import Comparison
from forebay.bench.compare.limits import limit, of_floats, without_attention
from forebay.bench.compare.rows import OURS, OURS_EXACT, Kind, Row
from forebay.bench.compare.turns import Span, best_peer, failures, goal_met, median_loads, spans, times_as_good
from forebay.kernels.cpu import cpu_info


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
    by_side = {name: spans(turns) for name, turns in comparison.turns.items()}
    rows = {}
    for row in comparison.rows:
        figures = {name: found[row.name] for name, found in by_side.items() if row.name in found}
        rows[row.name] = _row(row, figures) | _judged(row, figures, OURS, comparison)
        if OURS_EXACT in figures:
            rows[row.name]["fp32"] = _judged(row, figures, OURS_EXACT, comparison)
        rows[row.name]["left_out"] = _left_out(row, comparison, figures)
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


def _limits(row: Row, own: str, comparison: Comparison) -> dict[str, float]:
    """The row's limit for our side `own`, with and without attention, and that of a prefill in floating-point numbers;
    empty when it has none, or before its turn.
    """
    bounds, load = comparison.bounds(own), comparison.setup.load
    if bounds is None:
        return {}
    ways = {"limit": bounds, "limit_without_attention": without_attention(bounds)}
    if row.kind == Kind.PREFILL:
        ways["float_limit"] = of_floats(bounds)
    found = {name: limit(row, way, load) for name, way in ways.items()}
    return {name: best for name, best in found.items() if best is not None}


def _row(row: Row, figures: Mapping[str, Span]) -> dict[str, Any]:
    """What was measured."""
    return {
        "title": row.title,
        "unit": row.unit,
        "better": "higher" if row.higher_is_better else "lower",
        **{name: _rounded(span.median) for name, span in figures.items()},
        "min": {name: _rounded(span.low) for name, span in figures.items()},
        "max": {name: _rounded(span.high) for name, span in figures.items()},
        "turns": {name: span.turns for name, span in figures.items()},
        "goal": goal_text(row),
    }


def _judged(row: Row, figures: Mapping[str, Span], own: str, comparison: Comparison) -> dict[str, Any]:
    """How good our side `own` is, beside the peers and its limit."""
    values = {name: span.median for name, span in figures.items()}
    ours, peer, limits = values.get(own), best_peer(row, values), _limits(row, own, comparison)
    ratio = None if ours is None or peer is None else times_as_good(row, ours, values[peer])
    shares = {name: None if ours is None else times_as_good(row, ours, best) for name, best in limits.items()}
    return {
        "best_peer": peer,
        "ratio_to_best": _rounded(ratio),
        "limit": _rounded(limits.get("limit")),
        "of_limit": _rounded(shares.get("limit")),
        "of_limit_without_attention": _rounded(shares.get("limit_without_attention")),
        "of_float_limit": _rounded(shares.get("float_limit")),
        "goal_met": goal_met(row, values, shares.get("float_limit"), own),
    }


def _left_out(row: Row, comparison: Comparison, figures: Mapping[str, Span]) -> dict[str, str]:
    """By side, why this row has no value of it."""
    reasons = dict(comparison.left_out)
    for name, turns in comparison.turns.items():
        if name not in figures:
            reasons[name] = failures(turns).get(row.name, "no turn came to it")
    return reasons


def _measured_limits(comparison: Comparison) -> dict[str, float]:
    bounds = comparison.bounds()
    if bounds is None:
        return {}
    return {name: round(getattr(bounds, name), 1) for name in ("gemm_gflops", "float_gflops", "read_gbps")}


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
    if row.goal.of_float_limit is not None:
        parts.append(f"{row.goal.of_float_limit:.0%} of the limit of floating-point products")
    return ", ".join(parts)
