"""Reasoning that a client carries for us: packed into an item's `encrypted_content`, and unpacked when it is sent back.

It is not secret, and not trusted when it returns: the client reads the same text in the item's `content`, and what it
sends is encoded as text. Clients that keep no `content` (Codex) give the model its reasoning back through it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from forebay.api.asking import Path
from forebay.api.responses_items import ReasoningItem
from forebay.core.errors import InvalidRequestError

_MARK: Final = "forebay.1."


def pack(text: str) -> str:
    """The text as an opaque word."""
    return _MARK + base64.urlsafe_b64encode(text.encode()).decode()


def reasoning_of(item: ReasoningItem, place: Path) -> str:
    """The text of a reasoning item: its content, else what was packed.

    Raises InvalidRequestError for an `encrypted_content` that another server made, when there is no content beside it.
    """
    if item.content:
        return "\n".join(part.text for part in item.content)
    if item.encrypted_content is None:
        return "\n".join(part.text for part in item.summary)
    try:
        if not item.encrypted_content.startswith(_MARK):
            raise ValueError("another server's")
        return base64.b64decode(item.encrypted_content.removeprefix(_MARK), b"-_", validate=True).decode()
    except (ValueError, binascii.Error) as error:
        param = ".".join(map(str, (*place, "encrypted_content")))
        text = f"'{param}' was not made by this server, so it can't be read. Leave the item out."
        raise InvalidRequestError(text, param) from error
