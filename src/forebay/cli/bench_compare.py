"""`forebay bench compare`: its options, and carrying it out. The measuring is in `forebay.bench.compare`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

from forebay.cli import console
from forebay.cli.options import DEFAULT_MODEL, Flag, Positive, Quantize, Seconds

if TYPE_CHECKING:
    from forebay.bench.compare.comparison import Comparison
    from forebay.bench.compare.side import Setup
    from forebay.models import ModelSource

_CONTEXT = 8192
"""Tokens that a sequence may have: enough for every row, and what SmolLM2 has."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """What is compared, and where the report goes."""

    peers: str = ""
    """Engines to stand beside ours, separated by commas: llama.cpp=FOLDER_OF_BINARIES, vllm=ITS_PYTHON."""
    rows: str = "all"
    """Rows of the table, separated by commas; all, or the first part of names such as decode."""
    turns: Positive = 5
    """Turns that each side takes; medians are reported."""
    row_budget: Seconds | None = None
    """Seconds that one row of one side may take over all turns; a row is measured once even when that takes longer."""
    requests: Positive = 1
    """Requests that each client sends to a server, one after the other."""
    gguf: Path | None = None
    """GGUF file that llama.cpp reads; by default the model itself when it is one."""
    hf_folder: Path | None = None
    """Hugging Face folder that vLLM reads; by default the model itself when it is one."""
    quantize: Quantize = "auto"
    """Weights of our side, as for forebay serve."""
    activations: Literal["int8", "fp32", "both"] = "int8"
    """How far our side may round what weights are multiplied with, as for forebay serve; both takes turns with int8 and
    fp32, which is the side `ours-fp32` then."""
    vllm_dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """What vLLM computes in; auto is float32 where the processor has no AVX-512 or bf16 arithmetic, else bfloat16."""
    threads: Positive | None = None
    """Compute threads of every side; by default the cores that this process may use."""
    timeout: Seconds = 900.0
    """Seconds for one row, one load over HTTP, or one process to start."""
    output: Path = Path("bench-compare")
    """Folder for report.json, report.md and the plots."""
    json: Flag = False
    """Print the report as JSON instead of the table."""


_OPTIONS = CompareOptions()


def compare(model: str = DEFAULT_MODEL, *, options: CompareOptions = _OPTIONS) -> int:
    """Measure Forebay beside other engines on this machine, taking turns.

    The report is written after every turn, and when this is interrupted. Exit code 1 when a row of ours has no figure.

    Parameters
    ----------
    model
        As for forebay serve; a peer reads the same weights in its own format.
    """
    from forebay.bench.compare.comparison import Budget, parse_peers, prepare
    from forebay.bench.compare.comparison import compare as carry_out
    from forebay.bench.compare.rows import OURS, choose_rows
    from forebay.models import resolve

    rows = choose_rows(options.rows)
    peers = parse_peers(options.peers)
    folder = _made(options.output)
    comparison, sides = prepare(peers, rows, _setup(model, resolve(model), options))
    for name, reason in comparison.left_out.items():
        console.notice(f"forebay: {name} is left out: {reason}")
    write = _writer(comparison, folder)
    with console.stages("comparing") as report, _ends_in_order():
        try:
            carry_out(comparison, sides, Budget(options.turns, options.row_budget), report, write)
        finally:
            figures = write()
    _draw(figures, folder)
    console.say(json.dumps(figures, indent=2) if options.json else (folder / "report.md").read_text())
    console.notice(f"forebay: the report is in {folder}")
    return 1 if any(OURS in row["left_out"] for row in figures["rows"].values()) else 0


@contextmanager
def _ends_in_order() -> Iterator[None]:
    """SIGTERM unwinds this process as Ctrl-C does, so that the processes it started are ended."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _setup(model: str, source: ModelSource, options: CompareOptions) -> Setup:
    from forebay.bench.compare.rows import Load
    from forebay.bench.compare.side import Setup
    from forebay.kernels.cpu import cpu_info

    gguf = options.gguf or (source.path if source.kind == "gguf" else None)
    hf_folder = options.hf_folder or (source.path if source.kind == "hf" else None)
    return Setup(
        model=model,
        threads=options.threads or cpu_info().usable_cores,
        load=Load(requests_per_client=options.requests),
        gguf=None if gguf is None else str(gguf),
        hf_folder=None if hf_folder is None else str(hf_folder),
        max_model_len=_CONTEXT,
        timeout_s=options.timeout,
        quantize=options.quantize,
        activations=options.activations,
        vllm_dtype=options.vllm_dtype,
    )


def _made(folder: Path) -> Path:
    from forebay.core.errors import ConfigError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"The folder {folder} can't be made: {error.strerror}. Change --output.") from error
    return folder


def _writer(comparison: Comparison, folder: Path) -> Callable[[], dict[str, Any]]:
    from forebay.bench.compare.report import report
    from forebay.bench.compare.table import markdown

    def write() -> dict[str, Any]:
        figures = report(comparison)
        (folder / "report.json").write_text(json.dumps(figures, indent=2) + "\n")
        (folder / "report.md").write_text(markdown(figures))
        return figures

    return write


def _draw(figures: dict[str, Any], folder: Path) -> None:
    try:
        from forebay.bench.compare.plots import draw
    except ModuleNotFoundError as error:
        console.notice(f"forebay: no plots, since {error.name} is not installed: pip install forebay[plots]")
        return
    draw(figures, folder)
