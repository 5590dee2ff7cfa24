"""Stops a process with all that it started, and lets it go on: SIGSTOP and SIGCONT. It starts and ends nothing.

A stopped process keeps its memory and takes no time of the processor, so that one that is slow to start can wait while
others are measured.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence

import psutil

_SETTLE_S = 5.0
"""How long the signals may take until every process has stopped."""
_POLL_S = 0.01
_HALTED = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)


def stop(pid: int) -> bool:
    """Stop the process and all below it, the parents first; what they start meanwhile is stopped as well.

    False when one of them has not stopped in time, or the process itself has ended; the others are stopped even then.
    """
    deadline = time.monotonic() + _SETTLE_S
    while time.monotonic() < deadline:
        tree = whole(pid)
        moving = [process for process in tree if _status(process) not in _HALTED]
        if not moving:
            return bool(tree) and _status(tree[0]) == psutil.STATUS_STOPPED
        signal_all(moving, signal.SIGSTOP)
        time.sleep(_POLL_S)
    return False


def carry_on(pid: int) -> None:
    """Let the process and all below it go on, the children first, so that no parent finds one that does not answer."""
    signal_all(whole(pid)[::-1], signal.SIGCONT)


def whole(pid: int) -> list[psutil.Process]:
    """The process, and after it its family; empty when it is no more."""
    try:
        return [psutil.Process(pid), *family(pid)]
    except psutil.Error:
        return []


def family(pid: int) -> list[psutil.Process]:
    """The processes below `pid`, parents before children, and those of its group; itself left out."""
    found: dict[int, psutil.Process] = {}
    with contextlib.suppress(psutil.Error):
        found = {child.pid: child for child in psutil.Process(pid).children(recursive=True)}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if process.pid != pid and os.getpgid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process
    return list(found.values())


def signal_all(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each of those that are still there."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.Error:
        return str(psutil.STATUS_ZOMBIE)
