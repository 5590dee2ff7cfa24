"""Makes prompts of many conversations that grow turn by turn, for replays longer than any recorded trace.

The same numbers give the same trace each time, so it can be gone through again instead of being kept.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

from forebay.bench.trace_replay import BLOCK_TOKENS, Prompt

_SYSTEM_PROMPTS = 200
"""Beginnings that conversations share, some of them much more often than others."""
_OPEN = 4000
"""Conversations that may go on at the same time."""
_NEW_SHARE = 0.15
"""Share of the requests that begin a conversation."""
_LONGEST = 48
"""Blocks at which a conversation ends."""
_PER_SECOND = 10.0


def synthetic_trace(requests: int, seed: int = 1) -> Iterator[Prompt]:
    """So many prompts, some ten a second; each goes on from its conversation's last one by one to three blocks."""
    chance = random.Random(seed)
    names = count(1)

    def fresh(blocks: int) -> list[bytes]:
        return [next(names).to_bytes(8, "little") for _ in range(blocks)]

    systems = [fresh(chance.randint(1, 8)) for _ in range(_SYSTEM_PROMPTS)]
    weights = [1 / (1 + i) for i in range(_SYSTEM_PROMPTS)]
    conversations: list[list[bytes]] = []
    now = 0.0
    for _ in range(requests):
        now += chance.expovariate(_PER_SECOND)
        if not conversations or chance.random() < _NEW_SHARE:
            blocks = list(chance.choices(systems, weights)[0])
            conversations.append(blocks)
            if len(conversations) > _OPEN:
                conversations.pop(0)
        else:
            # The younger a conversation is, the likelier it goes on.
            at = len(conversations) - 1 - int(chance.random() ** 3 * len(conversations))
            blocks = conversations[at]
            if len(blocks) >= _LONGEST:
                del conversations[at]
        blocks += fresh(chance.randint(1, 3))
        yield Prompt(now, len(blocks) * BLOCK_TOKENS - chance.randrange(BLOCK_TOKENS), list(blocks))
