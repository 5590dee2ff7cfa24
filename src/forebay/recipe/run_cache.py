"""What was encoded before, so that a conversation's next turn encodes only what is new.

It holds texts and ids of all tenants, in this process's memory only. Who sends a text that someone else sent before
gets the same ids, some milliseconds sooner; guessing a whole message is what it would take to learn from that.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Final, TypeAlias

from forebay.core.prompt import Origin

Encoded: TypeAlias = "list[tuple[array[int], Origin]]"
"""Ids in stretches of one origin."""
_ENTRY_BYTES: Final = 256


class RunCache:
    """The most recently used runs, up to `limit` bytes of texts and ids; beyond it the oldest are forgotten.

    Safe to use from several threads.
    """

    def __init__(self, limit: int = 32 << 20) -> None:
        self._limit = limit
        self._runs: OrderedDict[Hashable, tuple[Encoded, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, key: Hashable) -> Encoded | None:
        """What was put in under this key, if it is still there."""
        with self._lock:
            found = self._runs.get(key)
            if found is None:
                return None
            self._runs.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, encoded: Encoded, characters: int) -> None:
        """Remember a run of so many characters. One that alone takes more than a quarter of the limit is not kept."""
        size = _ENTRY_BYTES + 2 * characters + sum(ids.itemsize * len(ids) for ids, _ in encoded)
        if size > self._limit // 4:
            return
        with self._lock:
            replaced = self._runs.pop(key, None)
            self._bytes += size - (0 if replaced is None else replaced[1])
            self._runs[key] = encoded, size
            while self._bytes > self._limit:
                _, (_, freed) = self._runs.popitem(last=False)
                self._bytes -= freed
