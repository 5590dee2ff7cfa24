"""The worker process: one engine behind a ZeroMQ socket. Started by `cluster/`, as `python -m forebay.engine.worker`.

It takes `ToWorker` messages between steps and sends one `StepOutputs` a step. It ends on `Shutdown`, when its standard
input closes (its parent is gone), or when steps keep failing. SIGINT is left to the parent.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

import msgspec
import zmq

from forebay.core.cpus import free_to_move
from forebay.core.errors import ForebayError
from forebay.core.heap import trim_heap
from forebay.core.library_pages import release_library_pages
from forebay.core.messages import (
    FLUSHING,
    Abort,
    CheckIntegrity,
    FromWorker,
    MarkPublic,
    Progress,
    Ready,
    Shutdown,
    StepOutputs,
    Submit,
    ToWorker,
    WorkerFailed,
)
from forebay.engine.options import WorkerOptions
from forebay.engine.torch_import import import_torch

if TYPE_CHECKING:
    from forebay.engine.build import Report
    from forebay.engine.engine import Engine

log = logging.getLogger(__name__)

_STATS_EVERY_S = 0.25
_IDLE_WAIT_MS = 1000
_STALLED_WAIT_MS = 20
_TRIM_AFTER_S = 1.0
"""Without work for so long, what is free in the allocator goes back to the system."""


class Connection:
    """The worker's end of the socket pair. Both directions are bounded by ZeroMQ's high-water mark; a full one blocks
    the sender, so a stalled API holds the engine back rather than growing a queue.
    """

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.connect(address)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(sys.stdin.fileno(), zmq.POLLIN)
        self._decoder = msgspec.msgpack.Decoder(ToWorker)
        self._encoder = msgspec.msgpack.Encoder()

    def send(self, message: FromWorker) -> None:
        """Send, waiting while the queue is full."""
        self._socket.send(self._encoder.encode(message))

    def watch(self, fd: int) -> None:
        """Let `receive` end early when this file descriptor becomes readable."""
        self._poller.register(fd, zmq.POLLIN)

    def receive(self, wait_ms: int) -> list[ToWorker]:
        """All messages that are there, waiting up to `wait_ms` for the first. A closed parent reads as `Shutdown`."""
        ready = dict(self._poller.poll(wait_ms))
        if sys.stdin.fileno() in ready:
            return [Shutdown()]
        messages: list[ToWorker] = []
        while self._socket.poll(0):
            messages.append(self._decoder.decode(self._socket.recv()))
        return messages

    def close(self) -> None:
        """Give the last messages half a second to leave."""
        self._socket.close(linger=500)
        self._context.term()


def serve(engine: Engine, connection: Connection, *, low_memory: bool = False) -> None:
    """Step while there is work and answer messages until told to stop. What steps have freed goes back to the system
    once there was no work for a while; with `low_memory` so do the pages of libraries, which the next steps read again.
    """
    next_stats, busy, trim_at = 0.0, False, math.inf
    while True:
        for message in connection.receive(_wait_ms(engine)):
            if isinstance(message, Shutdown):
                return
            _handle(engine, connection, message)
        outputs = engine.step()
        if outputs:
            connection.send(StepOutputs(outputs))
        now = time.monotonic()
        if now >= next_stats or (busy and not engine.has_work):
            connection.send(engine.stats())
            next_stats = now + _STATS_EVERY_S
        if engine.has_work:
            trim_at = now + _TRIM_AFTER_S
        elif now >= trim_at:
            trim_heap()
            if low_memory:
                release_library_pages()
            trim_at = math.inf
        busy = engine.has_work


def _wait_ms(engine: Engine) -> int:
    if not engine.has_work:
        return _IDLE_WAIT_MS
    return _STALLED_WAIT_MS if engine.stalled else 0


def _handle(engine: Engine, connection: Connection, message: Submit | Abort | CheckIntegrity | MarkPublic) -> None:
    match message:
        case Submit(request):
            engine.submit(request)
        case Abort(request_ids):
            for request_id in request_ids:
                engine.abort(request_id)
        case MarkPublic(token_ids):
            engine.mark_public(token_ids)
        case CheckIntegrity(check_id):
            connection.send(engine.check(check_id))


def build(options: WorkerOptions, report: Report) -> Engine:
    """As `build_engine`, which is imported here, after torch. What is imported stays until the process ends, so the
    garbage collector need not look at it, then or later.
    """
    gc.disable()
    import_torch()
    from forebay.engine.build import build_engine  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    return build_engine(options, report)


def main() -> int:
    """Arguments: the address to connect to, and `WorkerOptions` as JSON."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s worker: %(message)s")
    with free_to_move():
        connection = Connection(sys.argv[1])
    try:
        options = msgspec.json.decode(sys.argv[2], type=WorkerOptions)
        engine = build(options, lambda stage, share: connection.send(Progress(stage, share)))
        if engine.wake_fd is not None:
            connection.watch(engine.wake_fd)
        trim_heap()
        connection.send(Ready(engine.info, engine.stats().tiers))
        release_library_pages()
        try:
            serve(engine, connection, low_memory=options.low_memory)
        finally:
            engine.close(lambda share: connection.send(Progress(FLUSHING, share)))
    except Exception as error:
        if not isinstance(error, ForebayError):
            log.exception("the worker ends")
        connection.send(WorkerFailed(type(error).__name__, str(error)))
        return 1
    finally:
        connection.close()
    return 0


def _leave(status: int) -> NoReturn:
    """End the process at once. All that needs closing is closed, and taking Python and torch apart takes half a second
    of computing, seconds on a busy machine, that whoever pressed Ctrl-C would wait for.
    """
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    _leave(main())
