"""Ids of calls in Mistral's older format, where a kept answer has the model's own.

There a call's id stands behind its arguments. The parser has passed the call on by then, under an id of the server's,
so a client's result names that one; in the prompt it has to name the one that the model wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import msgspec

from forebay.recipe.conversation import Message

Spell = Callable[[int], bytes]
"""A token's bytes."""


def with_kept_ids(messages: Sequence[Message], begin: int, spell: Spell) -> list[Message]:
    """The messages, with results that name calls as the kept answers do. `begin` is the token before an array of
    calls."""
    written: dict[str, str] = {}
    found: list[Message] = []
    for message in messages:
        if message.calls:
            written |= {call.id: call.id for call in message.calls} | _written(message, begin, spell)
        call_id = written.get(message.call_id, message.call_id)
        changed = message.role == "tool" and call_id != message.call_id
        found.append(msgspec.structs.replace(message, call_id=call_id) if changed else message)
    return found


def _written(message: Message, begin: int, spell: Spell) -> dict[str, str]:
    """The ids that the model wrote, by those that the client knows; none when the answer is not what it should be."""
    ids = [] if message.kept is None else message.kept.ids
    if ids.count(begin) != 1:
        return {}
    text = b"".join(map(spell, ids[ids.index(begin) + 1 :])).decode("utf-8", "replace")
    try:
        calls = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(calls, list) or len(calls) != len(message.calls):
        return {}
    named = [call.get("id") if isinstance(call, dict) else None for call in calls]
    return {call.id: name for call, name in zip(message.calls, named, strict=True) if isinstance(name, str) and name}
