"""Replays a recorded trace of prompts against the eviction policy of the lower tiers, with the trace's own clock.

Nothing is computed and no page is stored: blocks of a prompt are names, and a hit is a leading run of names that are
there. The same order (`kv.value`) evicts in the host pool and on disk. Plain LRU and a cache without bound are the
measures beside it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from forebay.core.errors import ConfigError
from forebay.kv import PAGE_TOKENS
from forebay.kv.value import ValueOrder, Worth

BLOCK_TOKENS = 512
"""Tokens that one name of the trace stands for."""
PAGES = BLOCK_TOKENS // PAGE_TOKENS
_SIZE = 1 << 20
_ROOT = b"root"
_FILL_SHARE = 10
"""A block is worth half after this part of the time that the cache takes to fill."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request of a trace."""

    time_s: float
    tokens: int
    blocks: list[bytes]
    """Names of its contents in order; the last block may be partly filled."""


class Cache(Protocol):
    """What is replayed against."""

    def hits(self, blocks: Sequence[bytes]) -> int:
        """How many leading blocks are there."""

    def use(self, blocks: Sequence[bytes], now: float) -> None:
        """A prompt has read or made these blocks; what no longer fits goes."""


class Lru:
    """The block that was used last longest ago goes first, a prompt's end before its start."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._blocks: OrderedDict[bytes, None] = OrderedDict()

    def hits(self, blocks: Sequence[bytes]) -> int:
        """How many leading blocks are there."""
        return _leading(block in self._blocks for block in blocks)

    def use(self, blocks: Sequence[bytes], now: float) -> None:
        """Move them to the end that goes last."""
        del now
        for block in reversed(blocks):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._room:
            self._blocks.popitem(last=False)


class ByValue:
    """The policy of the lower tiers: the least valuable block goes first, prefixes from their end."""

    def __init__(self, room: int, half_life_s: float) -> None:
        self._room = room
        self._worth = Worth(half_life_s)
        self._order = ValueOrder()
        self._uses: dict[bytes, int] = {}

    def hits(self, blocks: Sequence[bytes]) -> int:
        """How many leading blocks are there."""
        return _leading(block in self._order for block in blocks)

    def use(self, blocks: Sequence[bytes], now: float) -> None:
        """Score them anew, and make room."""
        for parent, block in pairwise([_ROOT, *blocks]):
            known = block in self._order
            uses = self._uses[block] = self._uses[block] + 1 if known else 0
            score = self._worth.score(now, uses, _SIZE)
            if known:
                self._order.rescore(block, score)
            else:
                self._order.add(block, parent, "trace", score)
        while len(self._order) > self._room and (least := self._order.least()) is not None:
            self._order.remove(least)
            del self._uses[least]


def read_trace(path: Path) -> list[Prompt]:
    """A JSONL file of {"timestamp": ms, "input_length": tokens, "hash_ids": [...]}. Raises ConfigError otherwise."""
    try:
        with path.open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines if line.strip()]
        found = [_prompt(row) for row in rows]
    except OSError as error:
        raise ConfigError(f"The trace {path} can't be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ConfigError(f"{path} is no trace of timestamp, input_length and hash_ids: {error!r}.") from error
    if not found:
        raise ConfigError(f"The trace {path} is empty.")
    return found


def _prompt(row: dict[str, Any]) -> Prompt:
    blocks = [block.to_bytes(8, "little") for block in row["hash_ids"]]
    return Prompt(row["timestamp"] / 1000, int(row["input_length"]), blocks)


def hit_rate(trace: Iterable[Prompt], cache: Cache) -> float:
    """Share of the prompts' tokens that the cache had when each prompt came."""
    hit = total = 0
    for prompt in trace:
        hit += min(cache.hits(prompt.blocks) * BLOCK_TOKENS, prompt.tokens)
        total += prompt.tokens
        cache.use(prompt.blocks, prompt.time_s)
    return hit / total


class Unbounded:
    """A cache that forgets nothing, and what there is to say of a trace that it has seen."""

    def __init__(self) -> None:
        self.requests = 0
        self.span_s = 0.0
        self._blocks: set[bytes] = set()
        self._began: float | None = None

    @property
    def blocks(self) -> int:
        """Distinct blocks."""
        return len(self._blocks)

    def hits(self, blocks: Sequence[bytes]) -> int:
        """How many leading blocks are there."""
        return _leading(block in self._blocks for block in blocks)

    def use(self, blocks: Sequence[bytes], now: float) -> None:
        """Remember them."""
        self._began = now if self._began is None else self._began
        self.requests, self.span_s = self.requests + 1, now - self._began
        self._blocks.update(blocks)


def replay(trace: Callable[[], Iterable[Prompt]], pages: int, curve: Sequence[int] = ()) -> dict[str, Any]:
    """Hit rates with room for `pages` pages of 16 tokens, and with each size of `curve`.

    `trace` gives the same prompts each time. Raises ConfigError for less than a block.
    """
    if min(pages, *curve, pages) < PAGES:
        raise ConfigError(f"A block of the trace takes {PAGES} pages; the cache must hold at least one.")
    seen = Unbounded()
    infinite = hit_rate(trace(), seen)

    def at(size: int) -> dict[str, float]:
        room = size // PAGES
        half_life = max(1.0, room / seen.blocks * max(seen.span_s, 1.0) / _FILL_SHARE)
        return {
            "pages": size,
            "hit_rate": round(hit_rate(trace(), ByValue(room, half_life)), 4),
            "lru": round(hit_rate(trace(), Lru(room)), 4),
        }

    return {
        **at(pages),
        "infinite": round(infinite, 4),
        "requests": seen.requests,
        "distinct_pages": seen.blocks * PAGES,
        "curve": [at(size) for size in curve],
    }


def _leading(found: Iterable[bool]) -> int:
    count = 0
    for there in found:
        if not there:
            break
        count += 1
    return count
