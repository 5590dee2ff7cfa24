"""The ids of answers that this server gave, for the time when a client sends them back as history.

A message is found by its tenant and by what it says, in the conversation that it answered: the key is a hash over the
conversation's messages up to it. So nothing that one conversation's answer held, such as reasoning that the client did
not send back, can enter another conversation. Numbers in a call's arguments are compared as the doubles that many
clients read them as, keys in any order. What isn't found is rendered by the template like any text of a client.

It is memory of one process: lost when that ends.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from time import monotonic
from typing import Final

from forebay.recipe import KeptAnswer, Message

_OVERHEAD: Final = 256
"""Bytes of an entry beside its ids, about."""


class HistoryKey:
    """What a conversation says up to some message, as a hash. Reasoning is not a part of it: clients may leave it
    out."""

    def __init__(self, tenant: str) -> None:
        """The empty conversation of a tenant."""
        self.digest = _hash(b"", [tenant])

    def copy(self) -> HistoryKey:
        """One that goes on by itself."""
        other = HistoryKey.__new__(HistoryKey)
        other.digest = self.digest
        return other

    def add(self, message: Message) -> bytes:
        """Go on by one message; the digest then."""
        # An answer whose text came in pieces, with calls between them, comes back in parts.
        answer = message.role == "assistant" and not isinstance(message.text, str)
        text = "".join(message.text) if answer else message.content
        calls = [part for call in message.calls for part in (call.id, call.name, canonical(call.arguments))]
        name = "" if message.role == "tool" else message.name
        self.digest = _hash(self.digest, [message.role, text, name, message.call_id, *calls])
        return self.digest


def _hash(before: bytes, parts: list[str]) -> bytes:
    digest = hashlib.blake2b(before, digest_size=32)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.digest()


def canonical(arguments: str) -> str:
    """Arguments as a client may have read and written them again; the text itself where it is no JSON."""
    try:
        return json.dumps(json.loads(arguments, parse_int=float), sort_keys=True)
    except (ValueError, RecursionError):
        return "not JSON: " + arguments


@dataclass(frozen=True, slots=True)
class _Entry:
    ids: array[int]
    body: int
    reasoning: str
    expires: float

    @property
    def size(self) -> int:
        return len(self.ids) * self.ids.itemsize + len(self.reasoning) * 4 + _OVERHEAD


class AnswerStore:
    """Bounded in entries, bytes, and time since an answer was last used. Safe to use from several threads.

    When it is full, the tenant that has the most bytes loses the answer that was unused for longest.
    """

    def __init__(self, max_entries: int, max_bytes: int, ttl_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._lock = Lock()
        self._tenants: dict[str, OrderedDict[bytes, _Entry]] = {}
        self._sizes: dict[str, int] = {}
        self.entries = 0

    @property
    def size(self) -> int:
        """Bytes, about."""
        return sum(self._sizes.values())

    def keep(self, tenant: str, key: bytes, reasoning: str, answer: KeptAnswer) -> None:
        """Remember the answer whose message has this key; a later one with the same key takes its place."""
        entry = _Entry(array("I", answer.ids), answer.body, reasoning, self._clock() + self._ttl_s)
        with self._lock:
            self._remove(tenant, key)
            self._tenants.setdefault(tenant, OrderedDict())[key] = entry
            self._sizes[tenant] = self._sizes.get(tenant, 0) + entry.size
            self.entries += 1
            while self.entries > self._max_entries or self.size > self._max_bytes:
                most = max(self._sizes, key=self._sizes.__getitem__)
                self._remove(most, next(iter(self._tenants[most])))

    def find(self, tenant: str, key: bytes, reasoning: str) -> tuple[KeptAnswer, str] | None:
        """The answer and its reasoning; None when it is not there or too old, or when the client sent other reasoning.

        `reasoning` is empty where the client sent none.
        """
        with self._lock:
            entry = self._tenants.get(tenant, OrderedDict()).get(key)
            if entry is None:
                return None
            if entry.expires <= self._clock():
                self._remove(tenant, key)
                return None
            if reasoning.strip() not in ("", entry.reasoning.strip()):
                return None
            self._tenants[tenant][key] = replace(entry, expires=self._clock() + self._ttl_s)
            self._tenants[tenant].move_to_end(key)
            return KeptAnswer(entry.ids.tolist(), entry.body), entry.reasoning

    def _remove(self, tenant: str, key: bytes) -> None:
        entry = self._tenants.get(tenant, OrderedDict()).pop(key, None)
        if entry is None:
            return
        self.entries -= 1
        self._sizes[tenant] -= entry.size
        if not self._tenants[tenant]:
            del self._tenants[tenant], self._sizes[tenant]
