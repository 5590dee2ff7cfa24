"""Runs other programs: to their end, or as a server for a while. Each has an owner that ends it and all it started.

They stay in this session but in a process group of their own, so that Ctrl-C reaches only us, and we then end them.
Stopping one for a while is `stopping`'s work.
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

from forebay.bench.compare.stopping import carry_on, family, signal_all
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
    with started(command) as process:
        try:
            code = process.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise PeerError(f"{process.name} did not end within {timeout_s:.0f} s. {process.last_words()}") from None
        if code:
            raise PeerError(f"{process.name} ended with code {code}. {process.last_words()}")
        return process.output(), process.errors()


class Running:
    """A process that was started, with what it writes in files."""

    def __init__(self, popen: subprocess.Popen[bytes], output: IO[bytes], errors: IO[bytes], name: str) -> None:
        self.popen = popen
        self.name = name
        self._output, self._errors = output, errors

    def output(self, begin: int = 0) -> str:
        """What it wrote to standard output so far, from the byte `begin` on."""
        return _content(self._output, begin)

    def output_bytes(self) -> int:
        """How much that is by now."""
        return os.fstat(self._output.fileno()).st_size

    def errors(self) -> str:
        """What it wrote to standard error so far."""
        return _content(self._errors, 0)

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


def _content(file: IO[bytes], begin: int) -> str:
    """What a file holds from `begin` on. The process writes at the file's position, so that must not be moved."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), max(0, size - begin), begin).decode(errors="replace")


@contextlib.contextmanager
def started(command: Command, *, asked: bool = False) -> Iterator[Running]:
    """Start a process; leaving ends it and everything that it started. With `asked` its standard input is a pipe.

    Raises PeerError when it can't be started.
    """
    name = os.path.basename(command.arguments[0])  # noqa: PTH119 (a name, not a path)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            popen = subprocess.Popen(  # noqa: S603 (the operator names the programs)
                list(command.arguments),
                stdin=subprocess.PIPE if asked else subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**os.environ, **command.environment},
                process_group=0,
            )
        except OSError as error:
            raise PeerError(f"{command.arguments[0]} can't be started: {error.strerror or error}.") from error
        try:
            yield Running(popen, output, errors, name)
        finally:
            end(popen)
            if popen.stdin is not None:
                popen.stdin.close()


def end(popen: subprocess.Popen[bytes]) -> None:
    """Ask the process to end, then what is left of its group and its children; after a grace each, kill."""
    below = family(popen.pid)
    carry_on(popen.pid)
    if popen.poll() is None:
        popen.send_signal(signal.SIGTERM)
    try:
        popen.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()
    signal_all(below, signal.SIGTERM)
    _, alive = psutil.wait_procs(below, timeout=_CHILD_GRACE_S)
    signal_all(alive, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=_CHILD_GRACE_S)
