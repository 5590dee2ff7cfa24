"""What the routes of the Responses protocol do: prepare a request, make its response, at once or later, and keep it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from prometheus_client import Gauge
from starlette.requests import Request
from starlette.responses import Response

from forebay.api.asking import Prepared
from forebay.api.auth import Identity
from forebay.api.cache import retention_of
from forebay.api.errors import fault_of, log_failure
from forebay.api.generation import Delta, Generation, run_all
from forebay.api.replies import json_response
from forebay.api.responses_answer import ResponseAnswer
from forebay.api.responses_asking import ask_of, check_fields, check_prompt_fields, sampling_of
from forebay.api.responses_history import Inputs, inputs_of, listed
from forebay.api.responses_jobs import Jobs
from forebay.api.responses_log import EventLog, LogStream
from forebay.api.responses_store import Record, ResponseStore
from forebay.api.responses_stream import ResponseEvents
from forebay.api.responses_truncation import prepared_to_fit
from forebay.api.responses_types import InputTokensRequest, ResponsesRequest
from forebay.api.sampling import priority_of
from forebay.api.service import Service, identity_of
from forebay.core.errors import InvalidRequestError

_MEASURED_EVERY = 256
"""Deltas after which a growing response's bytes are counted anew."""


@dataclass(frozen=True, slots=True)
class _Work:
    """A response that can be made."""

    answer: ResponseAnswer
    generation: Generation
    record: Record | None
    """None: it is not kept."""


class ResponsesService:
    """The parts behind the routes."""

    def __init__(self, service: Service, jobs: Jobs) -> None:
        config = service.config
        self.service = service
        self.jobs = jobs
        self.store = ResponseStore(
            config.stored_responses, config.stored_responses_bytes, config.stored_responses_ttl_s
        )
        self._gauges()

    def _gauges(self) -> None:
        registry, store = self.service.metrics.registry, self.store
        kept = Gauge("forebay_stored_responses", "Responses that are kept for later requests.", registry=registry)
        kept.set_function(lambda: len(store))
        size = Gauge("forebay_stored_responses_bytes", "Their bytes, as JSON.", registry=registry)
        size.set_function(lambda: store.size)
        text = "Responses given up for want of room, since the start."
        given_up = Gauge("forebay_stored_responses_given_up", text, registry=registry)
        given_up.set_function(lambda: store.given_up)

    async def create(self, body: ResponsesRequest, request: Request) -> Response:
        """Make a response."""
        check_fields(body)
        if body.background:
            self._check_background()
        identity = identity_of(request)
        work = await self._work(body, identity)
        if body.background:
            return self._begin(body, work, identity)
        if body.stream:
            events = ResponseEvents(work.answer, lambda: self._keep(work, identity))
            return self.service.stream([work.generation], events)
        deltas = await self.service.collect(request, [work.generation])
        work.answer.take(work.generation, deltas[0])
        self._keep(work, identity)
        return json_response(work.answer.object())

    async def count(self, body: InputTokensRequest, request: Request) -> Response:
        """The tokens of a request's prompt."""
        check_prompt_fields(body)
        prepared, _ = await self._prepared(body, identity_of(request))
        return json_response({"object": "response.input_tokens", "input_tokens": len(prepared.ids)})

    async def _prepared(
        self, body: ResponsesRequest | InputTokensRequest, identity: Identity
    ) -> tuple[Prepared, Inputs]:
        self.service.check_model(body.model)
        inputs = inputs_of(body, self.store, identity.tenant)
        ask = ask_of(body, inputs, self.service.config)
        if body.truncation == "auto":
            wanted = body.max_output_tokens if isinstance(body, ResponsesRequest) else None
            return await prepared_to_fit(ask, wanted, self.service, identity), inputs
        return await self.service.prepare(ask, identity), inputs

    async def _work(self, body: ResponsesRequest, identity: Identity) -> _Work:
        service = self.service
        tier = "priority" if body.service_tier == "fast" else body.service_tier
        priority = priority_of(body.priority, tier, identity)
        sampling = sampling_of(body, service.config, service.recipe)
        keep = retention_of(body.cache, service.router.model.retention_classes)
        prepared, inputs = await self._prepared(body, identity)
        answer = ResponseAnswer(body, service.names[0], priority, service.recipe)
        generation = service.generation(
            answer.id, prepared, sampling, priority, identity, prompt_param="input", retention=keep
        )
        return _Work(answer, generation, _record(body, answer, inputs))

    def _keep(self, work: _Work, identity: Identity) -> None:
        if work.record is not None:
            self.store.add(identity.tenant, work.record)

    def _check_background(self) -> None:
        if self.service.config.background_responses == 0:
            raise InvalidRequestError("This server makes no responses in the background.", "background")
        self.jobs.check()

    def _begin(self, body: ResponsesRequest, work: _Work, identity: Identity) -> Response:
        """Start a response in the background; the answer is its state now, or its stream."""
        record = work.record
        if record is None:
            raise RuntimeError("a response in the background is always stored")
        log = EventLog()
        record.log = log if body.stream else None
        events = ResponseEvents(work.answer)
        self.store.add(identity.tenant, record)
        first = json_response(work.answer.object())
        job = self.jobs.start(self._make(work, events, log, identity))
        record.job = job
        job.add_done_callback(lambda _: self._settle(record, events, log, identity))
        return LogStream(log, 0, self.service.config) if body.stream else first

    async def _make(self, work: _Work, events: ResponseEvents, log: EventLog, identity: Identity) -> None:
        """One response in the background. Raises nothing but its cancellation."""
        count = 0

        async def sink(generation: Generation, delta: Delta) -> None:
            nonlocal count
            log.add(events.of(generation, delta))
            count += 1
            if count % _MEASURED_EVERY == 0 and work.record is not None:
                self.store.measure(identity.tenant, work.record)

        log.add(events.first())
        try:
            await run_all([work.generation], self.service.router, sink, self.service.config.request_timeout_s)
        except Exception as error:  # told to whoever reads the response
            fault = fault_of(error)
            log_failure(error, fault)
            log.add(events.failed(fault))

    def _settle(self, record: Record, events: ResponseEvents, log: EventLog, identity: Identity) -> None:
        """The job is over, or never ran."""
        log.add(events.cancelled())
        log.finish()
        record.job = None
        self.store.measure(identity.tenant, record)

    async def cancel(self, tenant: str, response_id: str) -> Response:
        """End a response that is being made in the background; one that is complete stays as it is."""
        record = self.store.get(tenant, response_id)
        if not record.answer.background:
            text = "Only a response that was created with 'background' can be cancelled; to end another, hang up."
            raise InvalidRequestError(text, "response_id")
        if record.job is not None:
            record.job.cancel()
            await asyncio.wait([record.job])
        return json_response(record.answer.object())


def _record(body: ResponsesRequest, answer: ResponseAnswer, inputs: Inputs) -> Record | None:
    if body.store is False:
        return None
    items = listed(inputs.own)
    return Record(answer, json.dumps(items).encode(), [item["id"] for item in items], body.previous_response_id)
