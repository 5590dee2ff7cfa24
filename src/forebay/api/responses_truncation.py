"""`truncation: auto`: what is oldest of a conversation is left out until the rest fits into the context.

Whole turns go, from a user's message to the next, so that no call loses its answer; system messages at the beginning
and the last turn stay. How many turns have to go is found by bisection.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import msgspec

from forebay.api.asking import Ask, Path, Prepared
from forebay.api.auth import Identity
from forebay.api.service import Service
from forebay.recipe import Message

_LEAST_ROOM: Final = 16
"""Tokens of the context that at least stay for the answer."""


async def prepared_to_fit(ask: Ask, wanted: int | None, service: Service, identity: Identity) -> Prepared:
    """The prompt with as many of the last turns as leave room for `wanted` tokens (None: a few).

    With only the last turn it may still be too long. Raises what `service.prepare` raises.
    """
    context = service.router.model.max_model_len
    limit = context - min(max(wanted or 0, _LEAST_ROOM), context // 2)
    prepared = await service.prepare(ask, identity)
    starts = turns(ask.conversation.messages)
    if len(prepared.ids) <= limit or len(starts) < 2:
        return prepared
    tried: dict[int, Prepared] = {}
    low, high = 1, len(starts) - 1
    while low < high:
        middle = (low + high) // 2
        tried[middle] = await service.prepare(from_message(ask, starts[middle]), identity)
        if len(tried[middle].ids) <= limit:
            high = middle
        else:
            low = middle + 1
    return tried[low] if low in tried else await service.prepare(from_message(ask, starts[low]), identity)


def turns(messages: Sequence[Message]) -> list[int]:
    """Where each turn begins: at a user's message that follows another role's."""
    return [
        at
        for at, message in enumerate(messages)
        if message.role == "user" and (at == 0 or messages[at - 1].role != "user")
    ]


def from_message(ask: Ask, start: int) -> Ask:
    """The same with the system messages at the beginning, and then only the messages from `start` on."""
    messages = ask.conversation.messages
    lead = next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))
    conversation = msgspec.structs.replace(ask.conversation, messages=[*messages[:lead], *messages[start:]])
    locate = ask.locate

    def located(path: Path) -> Path:
        if path[:1] == ("messages",) and len(path) > 1 and isinstance(path[1], int) and path[1] >= lead:
            path = ("messages", path[1] + start - lead, *path[2:])
        return locate(path)

    return dataclasses.replace(ask, conversation=conversation, locate=located)
