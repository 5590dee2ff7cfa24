"""What names a page's content: a chain of blake3 hashes over token ids, rooted in the model and the tenant.

The same id means the same KV in every tier. It says nothing about where the page lies.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from blake3 import blake3

PAGE_TOKENS = 16
"""Tokens in a page: the unit of allocation and of identity."""

PUBLIC = ""
"""The tenant of pages that everyone may read. No key can have it: a tenant's name is never empty."""


def page_root(fingerprint: str, tenant: str) -> bytes:
    """The parent of a tenant's first pages (32 bytes).

    `fingerprint` names weights, KV layout and dtype. Both parts go in with their length, so no two pairs give the
    same input.
    """
    parts = (fingerprint.encode(), tenant.encode())
    return blake3(b"".join(struct.pack("<Q", len(part)) + part for part in parts)).digest()


def page_id(parent: bytes, tokens: Sequence[int]) -> bytes:
    """The id (32 bytes) of the page that holds `tokens` and follows the page named `parent`."""
    return blake3(parent + struct.pack(f"<{len(tokens)}I", *tokens)).digest()


def own_root(root: bytes, parent: bytes) -> bytes:
    """What the first page after a public prefix is hashed onto: the tenant's root and the last public page."""
    return blake3(root + parent).digest()
