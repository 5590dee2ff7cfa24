"""Draws the report: throughput over batch, latency over load. It computes no figure.

Needs matplotlib (the extra `plots`), which is imported only here. A side has its colour and its mark in every plot; the
colours (Okabe and Ito's) can be told apart by people who see colours differently, the marks also without any.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, NullLocator

from forebay.bench.compare.rows import OURS, OURS_EXACT

Curves = dict[str, dict[int, float]]
"""By side, then by x."""

_BATCHES = {"decode-1": 1, "decode-8": 8, "decode-32": 32}
_LATENCIES = {"median_ttft_ms": "median time to first token, ms", "p99_itl_ms": "p99 time between tokens, ms"}
_STYLES = {
    OURS: ("#0072B2", "o"),
    OURS_EXACT: ("#56B4E9", "D"),
    "llama.cpp": ("#D55E00", "s"),
    "vllm": ("#009E73", "^"),
}
_NAMES = {OURS: "Forebay", OURS_EXACT: "Forebay, fp32 activations", "vllm": "vLLM"}
_THROUGHPUTS = {"output_throughput": "output, tokens/s"}


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes."""

    title: str
    """What is on the y axis, with its unit."""
    curves: Curves
    logarithmic: bool = False


def draw(figures: dict[str, Any], folder: Path) -> list[Path]:
    """Write the plots that the report has data for into `folder`, as PNG; returns their paths."""
    written = []
    curves = batch_curves(figures)
    if any(len(points) > 1 for points in curves.values()):
        panels = [Panel("tokens/s of all sequences", curves)]
        path = folder / "throughput-over-batch.png"
        written.append(_plot(panels, "sequences that decode, at 128 tokens of context", figures, path))
    panels = [Panel(title, load_curves(figures, name)) for name, title in _THROUGHPUTS.items()]
    panels += [Panel(title, load_curves(figures, name), logarithmic=True) for name, title in _LATENCIES.items()]
    if any(points for panel in panels for points in panel.curves.values()):
        written.append(_plot(panels, "clients at once", figures, folder / "latency-over-load.png"))
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
        name: {int(clients): load[figure] for clients, load in loads.items() if figure in load}
        for name, loads in figures["loads"].items()
    }


def _plot(panels: list[Panel], x_title: str, figures: dict[str, Any], path: Path) -> Path:
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 4.2), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        _draw_panel(axis, panel)
        axis.set_xlabel(x_title)
    axes[0][0].legend(frameon=False)
    figure.suptitle(_circumstances(figures), fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _circumstances(figures: dict[str, Any]) -> str:
    box = figures["machine"]
    return f"{Path(figures['model']).name} on {box['cores']} cores of {box['cpu']}"


def _draw_panel(axis: Axes, panel: Panel) -> None:
    for name, points in panel.curves.items():
        colour, mark = _STYLES.get(name, ("#444444", "d"))
        label = _NAMES.get(name, name)
        axis.plot(
            list(points), list(points.values()), marker=mark, color=colour, linewidth=2, markersize=7, label=label
        )
    places = sorted({place for points in panel.curves.values() for place in points})
    axis.set_xscale("log", base=2)
    axis.set_xticks(places, [str(place) for place in places])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_ylabel(panel.title)
    if panel.logarithmic:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:,g}")
        axis.yaxis.set_minor_formatter(NullFormatter())
    else:
        axis.set_ylim(bottom=0)
    axis.grid(visible=True, which="both", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
