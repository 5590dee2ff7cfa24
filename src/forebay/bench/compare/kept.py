"""A process over many turns: one that starts quickly is started for each, one that starts slowly is kept and stopped.

How long the first start took decides. While stopped, the process takes no time of the processor; its memory stays.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from forebay.bench.compare.processes import Command, PeerError, Running, started
from forebay.bench.compare.stopping import carry_on, stop

KEEP_ABOVE_S = 20.0
"""A process is kept when its start took longer."""

_END_OF_WORK_S = 0.5

Ready = Callable[[Running], None]
"""Returns when the process can be used; raises PeerError when it will not."""


@dataclass(frozen=True, slots=True)
class Use:
    """A process that is ready."""

    process: Running
    start_s: float | None
    """Seconds from its start until it was ready; None when it had been kept."""


class Kept:
    """Owns at most one process. `close` ends it."""

    def __init__(self, keep_above_s: float = KEEP_ABOVE_S) -> None:
        self._keep_above_s = keep_above_s
        self._owned = contextlib.ExitStack()
        self._process: Running | None = None
        self._keeps = True

    def distrust(self) -> None:
        """End the process, and start a new one for each use from now on: it failed after it had been stopped."""
        self._keeps = False
        self.close()

    @property
    def waiting(self) -> bool:
        """Whether a process is kept, stopped."""
        return self._process is not None

    @contextlib.contextmanager
    def use(self, command: Callable[[], Command], ready: Ready, *, asked: bool = False) -> Iterator[Use]:
        """The kept process, or a new one. Leaving stops it when it is worth keeping and else ends it.

        One that was kept and is not ready again is ended, and none is kept from then on. One that can't be stopped is
        ended too. Raises PeerError when a new one does not become ready.
        """
        use = self._again(ready) or self._anew(command, ready, asked)
        kept = False
        try:
            yield use
            kept = self._worth_keeping(use) and self._stopped(use)
        finally:
            if kept:
                self._process = use.process
            else:
                self.close()

    def close(self) -> None:
        """End the process, if there is one."""
        self._process = None
        self._owned.close()

    def _worth_keeping(self, use: Use) -> bool:
        return self._keeps and (use.start_s is None or use.start_s > self._keep_above_s)

    def _stopped(self, use: Use) -> bool:
        """Stop it, after it had time to end what it still does for nobody, such as a step that was aborted."""
        time.sleep(_END_OF_WORK_S)
        return stop(use.process.popen.pid)

    def _again(self, ready: Ready) -> Use | None:
        process, self._process = self._process, None
        if process is None:
            return None
        carry_on(process.popen.pid)
        try:
            ready(process)
        except PeerError:
            self.distrust()
            return None
        return Use(process, None)

    def _anew(self, command: Callable[[], Command], ready: Ready, asked: bool) -> Use:
        begun = time.perf_counter()
        process = self._owned.enter_context(started(command(), asked=asked))
        try:
            ready(process)
        except BaseException:
            self.close()
            raise
        return Use(process, time.perf_counter() - begun)
