"""Runs other programs: to their end, or as a server for a while. Each has an owner that ends it and all it started.

They stay in this session but in a process group of their own, so that Ctrl-C reaches only us, and we then end them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

import psutil

from forebay.core.errors import ForebayError

STDERR_CHARS = 600
_GRACE_S = 20.0
"""How long a process that was asked to end gets before it is killed."""
_CHILD_GRACE_S = 5.0
"""The same for those that it leaves behind."""


class PeerError(ForebayError):
    """A side's process failed, did not end in time, or printed what can't be understood."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program, its arguments, and what it finds in the environment beside ours."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """As one would type it."""
        return " ".join([*(f"{name}={value}" for name, value in self.environment.items()), *self.arguments])


def run(command: Command, timeout_s: float) -> str:
    """Run to the end and return standard output. Raises PeerError with the end of standard error."""
    return run_both(command, timeout_s)[0]


def run_both(command: Command, timeout_s: float) -> tuple[str, str]:
    """As `run`, and returns standard error too."""
    with tempfile.TemporaryFile("w+", errors="replace") as output, started(command, output) as process:
        try:
            code = process.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise PeerError(f"{process.name} did not end within {timeout_s:.0f} s. {process.last_words()}") from None
        if code:
            raise PeerError(f"{process.name} ended with code {code}. {process.last_words()}")
        output.seek(0)
        return output.read(), process.errors()


class Running:
    """A process that was started, with its standard error in a file."""

    def __init__(self, popen: subprocess.Popen[bytes], errors: IO[str], name: str) -> None:
        self.popen = popen
        self.name = name
        self._errors = errors

    def errors(self) -> str:
        """What it wrote to standard error so far."""
        self._errors.seek(0)
        return self._errors.read()

    def last_words(self) -> str:
        """The end of that, on one line."""
        text = " ".join(self.errors().split())
        return f"It said: {text[-STDERR_CHARS:]}" if text else "It said nothing."

    def check_alive(self) -> None:
        """Raises PeerError when it has ended."""
        code = self.popen.poll()
        if code is not None:
            raise PeerError(f"{self.name} ended with code {code}. {self.last_words()}")

    def memory_bytes(self) -> int:
        """Memory of it and all processes below it; what several share is divided among them (Linux's PSS)."""
        main = psutil.Process(self.popen.pid)
        return sum(_memory(process) for process in (main, *main.children(recursive=True)))


def _memory(process: psutil.Process) -> int:
    try:
        details = process.memory_full_info()
    except psutil.Error:
        return 0
    return int(getattr(details, "pss", details.rss))


@contextlib.contextmanager
def started(command: Command, output: IO[str] | None = None) -> Iterator[Running]:
    """Start a process; leaving ends it and everything that it started. Raises PeerError when it can't be started."""
    name = os.path.basename(command.arguments[0])  # noqa: PTH119 (a name, not a path)
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        try:
            popen = subprocess.Popen(  # noqa: S603 (the operator names the programs)
                list(command.arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if output is None else output,
                stderr=errors,
                env={**os.environ, **command.environment},
                process_group=0,
            )
        except OSError as error:
            raise PeerError(f"{command.arguments[0]} can't be started: {error.strerror or error}.") from error
        try:
            yield Running(popen, errors, name)
        finally:
            end(popen)


def end(popen: subprocess.Popen[bytes]) -> None:
    """Ask the process to end, then what is left of its group and its children; after a grace each, kill."""
    family = _family(popen.pid)
    if popen.poll() is None:
        popen.send_signal(signal.SIGTERM)
    try:
        popen.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()
    _signal(family, signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=_CHILD_GRACE_S)
    _signal(alive, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=_CHILD_GRACE_S)


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _family(pid: int) -> list[psutil.Process]:
    """The processes below `pid` and those of its group, itself left out."""
    found: dict[int, psutil.Process] = {}
    with contextlib.suppress(psutil.Error):
        found = {child.pid: child for child in psutil.Process(pid).children(recursive=True)}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if process.pid != pid and os.getpgid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process
    return list(found.values())
