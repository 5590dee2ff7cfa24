"""Ids of tool calls, where a model's format asks for a shape of its own.

Mistral's takes nine letters and digits. What a server makes for such a model has that shape; an id that comes from
elsewhere (another model's conversation, another protocol) is mapped to one, always to the same.
"""

from __future__ import annotations

import re
import secrets
import string
from hashlib import sha256
from typing import Final

_ALPHABET: Final = string.ascii_letters + string.digits
_NINE: Final = re.compile(r"[a-zA-Z0-9]{9}")
_LENGTH: Final = 9


def new_nine_characters() -> str:
    """A new id of nine letters and digits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))


def is_nine_characters(call_id: str) -> bool:
    """Whether an id has the shape."""
    return _NINE.fullmatch(call_id) is not None


def nine_characters(call_id: str) -> str:
    """The id itself where it has the shape, else one made from its hash: 53 bits, so two ids of one conversation don't
    meet."""
    if is_nine_characters(call_id):
        return call_id
    number = int.from_bytes(sha256(call_id.encode("utf-8", "surrogatepass")).digest(), "big")
    found = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        found.append(_ALPHABET[digit])
    return "".join(found)
