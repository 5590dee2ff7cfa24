"""The API's end of the socket to one worker: typed messages, both ways. It knows no requests."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import msgspec
import zmq
import zmq.asyncio

from forebay.core.messages import FromWorker, ToWorker


class WorkerLink:
    """Binds an address that one worker connects to. Use it as a context manager: leaving it closes the socket at once.

    ZeroMQ bounds both directions (1,000 messages each): a full queue to the worker takes no more, a full one from it
    makes the worker wait.
    """

    def __init__(self, address: str) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.bind(address)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(FromWorker)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close(linger=0)
        self._context.term()

    async def offer(self, message: ToWorker) -> bool:
        """Queue a message, if there is room and a worker that is connected; says whether it was taken. Never waits."""
        try:
            await self._socket.send(self._encoder.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    async def receive(self) -> FromWorker:
        """The next message from the worker; waits for it."""
        message: FromWorker = self._decoder.decode(await self._socket.recv())
        return message
