"""What the routes of the Responses protocol do: prepare a request, make its response, at once or later, and keep it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge
from starlette.requests import Request
from starlette.responses import Response

from forebay.api.asking import Prepared
from forebay.api.auth import Identity
from forebay.api.cache import retention_of
from forebay.api.generation import Generation
from forebay.api.replies import json_response
from forebay.api.responses_answer import ResponseAnswer, encoded
from forebay.api.responses_asking import ask_of, check_fields, check_prompt_fields, sampling_of
from forebay.api.responses_background import Background
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
        self._watch(service.metrics.registry)

    def _watch(self, registry: CollectorRegistry) -> None:
        store = self.store
        kept = Gauge("forebay_stored_responses", "Responses that are kept for later requests.", registry=registry)
        kept.set_function(lambda: len(store))
        size = Gauge("forebay_stored_responses_bytes", "Their bytes, as JSON.", registry=registry)
        size.set_function(lambda: store.size)
        text = "Kept responses that were given up for want of room."
        store.on_given_up = Counter("forebay_stored_responses_given_up", text, registry=registry).inc

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
        record, tenant, config = work.record, identity.tenant, self.service.config
        if record is None:
            raise RuntimeError("a response in the background is always stored")
        self.jobs.check()  # others may have begun while this one was prepared
        record.log = EventLog() if body.stream else None
        self.store.add(tenant, record)
        now = json_response(work.answer.object())
        events = ResponseEvents(work.answer)
        background = Background(record, work.generation, events, lambda: self.store.measure(tenant, record))
        background.start(self.jobs, self.service.router, config.request_timeout_s)
        return now if record.log is None else LogStream(record.log, 0, config)

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
    return Record(answer, bytes(encoded(items, "input")), [item["id"] for item in items], body.previous_response_id)
