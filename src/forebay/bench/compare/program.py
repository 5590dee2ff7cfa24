"""Talks to the programs of `programs`: rows go in as a line of JSON, figures come back as lines, one a row.

Other output may stand between the lines, since vLLM logs to the same stream. It measures nothing itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from forebay.bench.compare.kept import Kept
from forebay.bench.compare.processes import Command, PeerError, Running
from forebay.bench.compare.rows import Row
from forebay.bench.compare.turns import Turn

_POLL_S = 0.1


class Program:
    """One program over many turns; see `Kept`."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` is the longest time until the program is ready, and then between two lines."""
        self._kept = Kept()
        self._timeout_s = timeout_s

    def measure(self, command: Callable[[], Command], rows: Sequence[Row], turn: Turn) -> None:
        """Let it measure rows; what comes is put into `turn` as it comes, and what does not is a failure of the row.

        A process that fails after it had been stopped is replaced by a new one, which measures what is left.
        """
        try:
            if not self._measured(command, rows, turn):
                self._measured(command, [row for row in rows if row.name not in turn.values | turn.failures], turn)
        except PeerError as error:
            turn.fail(rows, error)
        for row in rows:
            if row.name not in turn.values:
                turn.failures.setdefault(row.name, "the program gave no figure")

    def close(self) -> None:
        """End it."""
        self._kept.close()

    def _measured(self, command: Callable[[], Command], rows: Sequence[Row], turn: Turn) -> bool:
        """False when a process that had been kept failed. Raises PeerError when a new one does."""
        fresh = True
        try:
            with self._kept.use(command, self._ready, asked=True) as use:
                fresh = use.start_s is not None
                self._ask(use.process, rows, turn)
        except PeerError:
            if fresh:
                raise
            self._kept.distrust()
            return False
        return True

    def _ready(self, process: Running) -> None:
        """A program that was kept is ready as it is, if it lives; a new one says so."""
        process.check_alive()
        next(line for line in self._lines(process, 0) if "ready" in line)

    def _ask(self, process: Running, rows: Sequence[Row], turn: Turn) -> None:
        begin = process.output_bytes()
        write(process, {"rows": work(rows)})
        for line in self._lines(process, begin):
            take(line, turn)
            if "extras" in line:
                return

    def _lines(self, process: Running, begin: int) -> Iterator[dict[str, Any]]:
        """The JSON objects that it prints from the byte `begin` on. Raises PeerError when none comes in time."""
        seen, deadline = 0, time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            ended = process.popen.poll() is not None
            whole = process.output(begin).rpartition("\n")[0].splitlines()
            for line in map(parse_line, whole[seen:]):
                if line is not None:
                    deadline = time.monotonic() + self._timeout_s
                    yield line
            seen = len(whole)
            if ended:
                process.check_alive()
            time.sleep(_POLL_S)
        raise PeerError(f"{process.name} gave no figure within {self._timeout_s:.0f} s. {process.last_words()}")


def work(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What a program is told of each row."""
    return [
        {"name": row.name, "sequences": row.sequences, "context": row.context, "tokens": row.tokens} for row in rows
    ]


def write(process: Running, request: dict[str, Any]) -> None:
    """Send one line. Raises PeerError when the process no longer reads."""
    pipe = process.popen.stdin
    try:
        if pipe is not None:
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
    except OSError as error:
        raise PeerError(f"{process.name} takes no work. {process.last_words()}") from error


def parse_line(text: str) -> dict[str, Any] | None:
    """A line that is a JSON object; None for all others."""
    if not text.startswith("{"):
        return None
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def take(line: dict[str, Any], turn: Turn) -> None:
    """Put what a line says into the turn. Raises PeerError when it says nothing that is known."""
    try:
        if "extras" in line:
            turn.extras = {str(name): float(value) for name, value in line["extras"].items()}
        elif "failure" in line:
            turn.failures[line["row"]] = str(line["failure"])
        elif "value" in line:
            turn.values[line["row"]] = float(line["value"])
            turn.seconds[line["row"]] = float(line["seconds"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PeerError(f"The program printed {line}, which says nothing of a row.") from error
