"""Hands requests to the worker and its outputs back to whoever asked. It holds no prompt text and makes no protocol's
JSON.

A request is `waiting` until its first output. The bound on waiting requests is kept here, before anything is sent, so
that a refused one costs the worker nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

import msgspec
import zmq

from forebay.core.errors import (
    ConfigError,
    ContextLengthError,
    EngineUnavailableError,
    ForebayError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    UnsupportedModelError,
)
from forebay.core.messages import (
    Abort,
    CheckIntegrity,
    IntegrityReport,
    MarkPublic,
    ModelInfo,
    Progress,
    Ready,
    StepOutputs,
    Submit,
    TokenOutput,
    ToWorker,
    WorkerFailed,
    WorkerStats,
)
from forebay.core.request import GenerateRequest
from forebay.router.link import WorkerLink

log = logging.getLogger(__name__)

_START_ERRORS = {kind.__name__: kind for kind in (ConfigError, ModelNotFoundError, UnsupportedModelError)}

_CHECK_TIMEOUT_S = 10.0

_FULL_WAIT_S = 0.01
"""Between two tries to hand a message to a worker that takes none at the moment."""


class _Pending:
    """One request's outputs on their way to the client. The queue is bounded by the tokens that it may produce."""

    def __init__(self, request: GenerateRequest) -> None:
        self.outputs: asyncio.Queue[TokenOutput | None] = asyncio.Queue(
            request.sampling.n * (request.sampling.max_tokens + 1) + 1
        )
        self.started = False
        self.open = request.sampling.n

    def put(self, output: TokenOutput) -> None:
        self.started = True
        self.open -= output.finish_reason is not None
        self.outputs.put_nowait(output)


class Router:
    """Admission and dispatch for one worker.

    `run` must be running in a task of the owner's; it ends when `fail` is called.
    """

    def __init__(
        self, link: WorkerLink, max_waiting: int, on_progress: Callable[[str, float], None] | None = None
    ) -> None:
        self.stats = WorkerStats()
        self.on_stats: Callable[[WorkerStats], None] | None = None
        """Called with each statistics message; counters in it are totals since the worker started."""
        self._link = link
        self._max_waiting = max_waiting
        self._on_progress = on_progress
        self._pending: dict[str, _Pending] = {}
        self._checks: dict[int, asyncio.Future[IntegrityReport]] = {}
        self._check_ids = itertools.count()
        self._ready: asyncio.Future[ModelInfo] = asyncio.get_running_loop().create_future()
        self._failure: ForebayError | None = None

    @property
    def model(self) -> ModelInfo:
        """The model that the worker runs. Only after `wait_ready`."""
        return self._ready.result()

    @property
    def healthy(self) -> bool:
        """Whether the worker is there and takes requests."""
        return self._failure is None and self._ready.done()

    @property
    def waiting(self) -> int:
        """Requests that have no output yet."""
        return sum(not pending.started for pending in self._pending.values())

    @property
    def in_flight(self) -> int:
        """Requests that are not finished."""
        return len(self._pending)

    async def wait_ready(self) -> ModelInfo:
        """Wait until the worker has loaded its model.

        Raises:
            ForebayError: what kept it from starting, in the class that the worker named.
        """
        return await asyncio.shield(self._ready)

    async def run(self) -> None:
        """Receive until the worker fails; what can't be read from it counts as a failure."""
        while self._failure is None:
            try:
                self._handle(await self._link.receive())
            except (zmq.ZMQError, msgspec.MsgspecError) as error:
                log.exception("a message of the worker could not be read")
                self.fail(EngineUnavailableError(f"The engine's messages can't be read ({type(error).__name__})."))

    def _handle(self, message: Progress | Ready | StepOutputs | WorkerStats | IntegrityReport | WorkerFailed) -> None:
        match message:
            case StepOutputs(outputs):
                for output in outputs:
                    if pending := self._pending.get(output.request_id):
                        pending.put(output)
            case WorkerStats():
                self.stats = message
                if self.on_stats is not None:
                    self.on_stats(message)
            case Progress(stage, fraction):
                if self._on_progress is not None:
                    self._on_progress(stage, fraction)
            case Ready(model, tiers):
                self.stats.tiers = tiers
                self._ready.set_result(model)
            case IntegrityReport():
                if check := self._checks.pop(message.id, None):
                    check.set_result(message)
            case WorkerFailed(kind, text):
                self.fail(_START_ERRORS.get(kind, EngineUnavailableError)(text))

    def fail(self, error: ForebayError) -> None:
        """The worker is gone: every request in flight ends with an error, later ones are refused."""
        if self._failure is not None:
            return
        self._failure = error
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # it may be that nobody waits for it
        for pending in self._pending.values():
            if not pending.outputs.full():
                pending.outputs.put_nowait(None)
        for check in self._checks.values():
            check.cancel()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenOutput, None]:
        """Run a request; yields what each step adds to each choice until all choices are finished.

        Closing the iterator early, or cancelling the task in it, makes the worker forget the request before its next
        step.

        Raises:
            ContextLengthError, InvalidRequestError: it could never run.
            OverloadedError: too many requests wait.
            EngineUnavailableError: the worker is not there, or was lost on the way.
        """
        self._admit(request)
        pending = self._pending[request.id] = _Pending(request)
        try:
            await self._send(Submit(request))
            while pending.open or not pending.outputs.empty():
                output = await pending.outputs.get()
                if output is None:
                    raise EngineUnavailableError("The engine was lost while it worked on this request. Send it again.")
                yield output
        finally:
            del self._pending[request.id]
            if pending.open and self.healthy:
                with suppress(EngineUnavailableError):  # then there is nothing left to abort
                    await asyncio.shield(self._send(Abort([request.id])))

    async def _send(self, message: ToWorker) -> None:
        """Hand a message to the worker, waiting while it takes none. Raises EngineUnavailableError when it is lost."""
        while self._failure is None:
            if await self._link.offer(message):
                return
            await asyncio.sleep(_FULL_WAIT_S)
        raise EngineUnavailableError("The engine was lost. Send the request again.")

    def _admit(self, request: GenerateRequest) -> None:
        if not self.healthy:
            raise EngineUnavailableError("The engine is not there; the server can't answer requests now.")
        if request.id in self._pending:
            raise InvalidRequestError(f"The request id {request.id!r} is in use.")
        if len(request.prompt_ids) >= self.model.max_model_len:
            raise ContextLengthError(len(request.prompt_ids), self.model.max_model_len)
        if self.waiting >= self._max_waiting:
            raise OverloadedError(
                f"{self._max_waiting} requests are waiting already, which is this server's limit. Try again later.",
                retry_after=self._retry_after(),
            )

    def _retry_after(self) -> float:
        """Seconds in which a part of the waiting requests should have started, from the latest steps' pace."""
        steps = self.stats.steps
        pace = sum(step.actual_s for step in steps) / len(steps) if steps else 0.1
        return min(max(pace * self._max_waiting / 4, 1.0), 60.0)

    async def mark_public(self, token_ids: list[int]) -> None:
        """Have all tenants share the full pages of prompts that begin with these tokens.

        Raises EngineUnavailableError: the engine is not there.
        """
        await self._send(MarkPublic(token_ids))

    async def check_integrity(self) -> IntegrityReport:
        """Have the worker recount its pages between two steps.

        Raises:
            EngineUnavailableError: it does not answer within ten seconds.
        """
        if not self.healthy:
            raise EngineUnavailableError("The engine is not there.")
        check_id = next(self._check_ids)
        check = self._checks[check_id] = asyncio.get_running_loop().create_future()
        try:
            await self._send(CheckIntegrity(check_id))
            return await asyncio.wait_for(check, _CHECK_TIMEOUT_S)
        except (TimeoutError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and self._failure is None:
                raise
            raise EngineUnavailableError("The engine does not answer.") from error
        finally:
            self._checks.pop(check_id, None)
