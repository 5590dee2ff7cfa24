"""Responses that are kept for later requests: in memory, by tenant, bounded in number, bytes and time since last used.

Nobody learns of another tenant's responses: their ids are as unknown as ids that never were. A response that a
conversation goes on from is used together with all that came before it, so a conversation lives or ages as a whole.
Above a bound the oldest response of the tenant that holds most is given up. One that is given up or deleted while it is
being made is cancelled. A restart forgets everything.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from forebay.api.errors import FaultError, Kind
from forebay.api.responses_answer import ResponseAnswer
from forebay.api.responses_log import EventLog
from forebay.api.responses_output import Json
from forebay.core.errors import InvalidRequestError


@dataclass(slots=True, eq=False)
class Record:
    """One kept response."""

    answer: ResponseAnswer
    inputs: bytes
    """What the request itself sent, as JSON: items as clients read them, each with an id, references resolved."""
    input_ids: list[str]
    """The ids of these items."""
    previous: str | None
    """The response that it goes on from."""
    log: EventLog | None = None
    """Its events, when it was asked for in the background and streamed."""
    job: asyncio.Task[None] | None = None
    """Makes it; set while it runs in the background."""
    size: int = 0
    """Bytes as JSON, as they were counted last."""
    used: float = 0.0

    def items(self) -> list[Json]:
        """The items of `inputs`."""
        items: list[Json] = json.loads(self.inputs)
        return items

    def ids(self) -> list[str]:
        """The ids of all items, sent and answered."""
        return [*self.input_ids, *(item["id"] for item in self.answer.output)]


@dataclass(slots=True)
class _Shelf:
    """One tenant's records, those used longest ago first."""

    records: OrderedDict[str, Record] = field(default_factory=OrderedDict)
    holders: dict[str, list[Record]] = field(default_factory=dict)
    """Item id → the records that have such an item; clients send items on with their ids."""
    size: int = 0

    def index(self, record: Record) -> None:
        """Note the items that a record has got."""
        for item_id in record.ids():
            holders = self.holders.setdefault(item_id, [])
            if record not in holders:
                holders.append(record)

    def forget(self, record: Record) -> None:
        """The opposite."""
        for item_id in record.ids():
            holders = self.holders.get(item_id, [])
            if record in holders:
                holders.remove(record)
            if not holders:
                self.holders.pop(item_id, None)


class ResponseStore:
    """The kept responses of all tenants. For one event loop."""

    def __init__(self, most: int, max_bytes: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._shelves: dict[str, _Shelf] = {}
        self.on_given_up: Callable[[], None] = lambda: None
        """Called for each response that goes for want of room."""

    def __len__(self) -> int:
        return sum(len(shelf.records) for shelf in self._shelves.values())

    @property
    def size(self) -> int:
        """Bytes of all, as JSON."""
        return sum(shelf.size for shelf in self._shelves.values())

    def add(self, tenant: str, record: Record) -> None:
        """Keep one more; something older may go for it."""
        self._expire()
        shelf = self._shelves.setdefault(tenant, _Shelf())
        shelf.records[record.answer.id] = record
        record.used = self._clock()
        self.measure(tenant, record)

    def measure(self, tenant: str, record: Record) -> None:
        """Count a record's bytes and items anew: it has grown. Does nothing for one that was dropped meanwhile."""
        shelf = self._shelves.get(tenant)
        if shelf is None or record.answer.id not in shelf.records:
            return
        logged = 0 if record.log is None else record.log.size
        size = len(msgspec.json.encode(record.answer.object())) + len(record.inputs) + logged
        shelf.size += size - record.size
        record.size = size
        shelf.index(record)
        self._make_room()

    def get(self, tenant: str, response_id: str) -> Record:
        """The record. Raises FaultError (NOT_FOUND) for an id that this tenant has not."""
        self._expire()
        record = self._found(tenant, response_id)
        if record is None:
            raise FaultError(Kind.NOT_FOUND, f"Response with id '{response_id[:128]}' not found.")
        self._touch(tenant, record)
        return record

    def delete(self, tenant: str, response_id: str) -> Record:
        """Forget it. Raises FaultError (NOT_FOUND)."""
        record = self.get(tenant, response_id)
        self._drop(tenant, record)
        return record

    def chain(self, tenant: str, response_id: str) -> list[Record]:
        """The record and all that came before it, oldest first; all count as used now.

        Raises InvalidRequestError when one of them is not there, or is no complete response to go on from.
        """
        self._expire()
        found: list[Record] = []
        wanted: str | None = response_id
        while wanted is not None:
            record = self._found(tenant, wanted)
            if record is None:
                text = f"Previous response with id '{wanted[:128]}' not found. It was deleted, or is too old."
                raise InvalidRequestError(text, "previous_response_id")
            if record.answer.status not in ("completed", "incomplete"):
                text = (
                    f"The previous response '{wanted[:128]}' is {record.answer.status}, so nothing can go on from it."
                )
                raise InvalidRequestError(text, "previous_response_id")
            found.append(record)
            wanted = record.previous
        found.reverse()
        for record in found:
            self._touch(tenant, record)
        return found

    def item(self, tenant: str, item_id: str) -> Json | None:
        """The item of this id, from any response of the tenant, sent or answered."""
        self._expire()
        holders = self._shelves.get(tenant, _Shelf()).holders.get(item_id)
        if not holders:
            return None
        record = holders[-1]
        if item_id in record.input_ids:
            return record.items()[record.input_ids.index(item_id)]
        return next(item for item in record.answer.output if item["id"] == item_id)

    def _found(self, tenant: str, response_id: str) -> Record | None:
        shelf = self._shelves.get(tenant)
        return None if shelf is None else shelf.records.get(response_id)

    def _touch(self, tenant: str, record: Record) -> None:
        record.used = self._clock()
        self._shelves[tenant].records.move_to_end(record.answer.id)

    def _expire(self) -> None:
        limit = self._clock() - self._ttl_s
        for tenant, shelf in list(self._shelves.items()):
            for record in _older(shelf, limit):
                self._drop(tenant, record)

    def _make_room(self) -> None:
        while len(self) > self._most or self.size > self._max_bytes:
            tenant, shelf = max(self._shelves.items(), key=lambda pair: (pair[1].size, len(pair[1].records)))
            self._drop(tenant, next(iter(shelf.records.values())))
            self.on_given_up()

    def _drop(self, tenant: str, record: Record) -> None:
        shelf = self._shelves[tenant]
        del shelf.records[record.answer.id]
        shelf.forget(record)
        shelf.size -= record.size
        if not shelf.records:
            del self._shelves[tenant]
        if record.job is not None:
            record.job.cancel()


def _older(shelf: _Shelf, limit: float) -> Iterator[Record]:
    for record in list(shelf.records.values()):
        if record.used > limit:
            return
        yield record
