"""Draws the report: throughput over batch, latency over load.

Needs matplotlib (the extra `plots`), which is imported only here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

Curves = dict[str, dict[int, float]]
"""By side, then by x."""

_BATCHES = {"decode-1": 1, "decode-8": 8, "decode-32": 32}
_LATENCIES = {"median_ttft_ms": "median TTFT, ms", "p99_itl_ms": "p99 ITL, ms"}


def draw(figures: dict[str, Any], folder: Path) -> list[Path]:
    """Write the plots that the report has data for into `folder`, as PNG; returns their paths."""
    written = []
    curves = batch_curves(figures)
    if any(len(points) > 1 for points in curves.values()):
        written.append(_plot({"tokens/s": curves}, "sequences that decode", folder / "throughput-over-batch.png"))
    panels = {title: load_curves(figures, name) for name, title in _LATENCIES.items()}
    if any(points for points in panels["p99 ITL, ms"].values()):
        written.append(_plot(panels, "clients", folder / "latency-over-load.png", logarithmic=True))
    return written


def batch_curves(figures: dict[str, Any]) -> Curves:
    """By side: tokens a second by number of sequences."""
    rows = figures["rows"]
    return {
        name: {batch: rows[row][name] for row, batch in _BATCHES.items() if name in rows.get(row, {})}
        for name in figures["sides"]
    }


def load_curves(figures: dict[str, Any], figure: str) -> Curves:
    """By side: one of the load's figures by number of clients."""
    return {
        name: {int(clients): load[figure] for clients, load in loads.items()}
        for name, loads in figures["loads"].items()
    }


def _plot(
    panels: dict[str, dict[str, dict[int, float]]], x_title: str, path: Path, *, logarithmic: bool = False
) -> Path:
    figure, axes = plt.subplots(1, len(panels), figsize=(5.5 * len(panels), 4), squeeze=False)
    for axis, (title, curves) in zip(axes[0], panels.items(), strict=True):
        for name, points in curves.items():
            axis.plot(list(points), list(points.values()), marker="o", label=name)
        axis.set_xlabel(x_title)
        axis.set_ylabel(title)
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:g}")
        if logarithmic:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        axis.grid(visible=True, alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
