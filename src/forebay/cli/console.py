"""What all commands print with: notices and progress on stderr, results on stdout. It knows no command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

Report = Callable[[str, float], None]


def notice(text: str) -> None:
    """Print a line for the person at the terminal, on stderr. Lost when nobody reads stderr any more."""
    with suppress(BrokenPipeError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def say(text: str = "", end: str = "\n") -> None:
    """Print a part of the command's result, on stdout."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def fail(text: str) -> None:
    """Print why a command ends, as one line on stderr."""
    notice(f"forebay: {' '.join(text.split())}")


def progress_bar() -> Progress:
    """A progress display on stderr that leaves no trace when it ends, and shows nothing when stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def stages(first: str) -> Iterator[Report]:
    """A bar for work in named stages: the report takes a stage and its share done, 0 to 1. Off a terminal, one line."""
    seen: set[str] = set()
    with progress_bar() as progress:
        task = progress.add_task(first, total=1.0, note="")

        def report(stage: str, share: float) -> None:
            if stage not in seen and progress.disable:
                notice(f"forebay: {stage} ...")
            seen.add(stage)
            progress.update(task, description=stage, completed=share)

        yield report


def binary_size(count: float) -> str:
    """Bytes as people read them: 1536 → "1.5 KiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
