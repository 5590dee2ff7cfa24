"""The beginnings of prompts that the operator has marked as everybody's. Ids only; which pages are there is the book's
business.

A page of a public prefix has the same id for every tenant, and is computed from the same tokens whoever asks first. The
first page after it goes back to the tenant's own root, so what follows is as separate as ever. Everyone can find out,
by timing, whether a text begins with something that is public: so nothing secret may be in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from forebay.kv.identity import PAGE_TOKENS, page_id


class PublicPrefixes:
    """Chains of page ids under one root. Full pages only; what is left of a prefix stays with each tenant."""

    def __init__(self, root: bytes) -> None:
        """`root` is `page_root` of the model and the tenant `PUBLIC`."""
        self.root = root
        self._marked: set[bytes] = set()

    def mark(self, tokens: Sequence[int]) -> int:
        """Prompts that begin with these tokens share the full pages of them; returns how many those are."""
        parent = self.root
        for start in range(0, len(tokens) // PAGE_TOKENS * PAGE_TOKENS, PAGE_TOKENS):
            parent = page_id(parent, tokens[start : start + PAGE_TOKENS])
            self._marked.add(parent)
        return len(tokens) // PAGE_TOKENS

    def pages_of(self, tokens: Sequence[int]) -> int:
        """How many leading pages of a prompt are public. Hashes one page more than that, or none at all."""
        if not self._marked:
            return 0
        parent, pages = self.root, 0
        for start in range(0, len(tokens) // PAGE_TOKENS * PAGE_TOKENS, PAGE_TOKENS):
            parent = page_id(parent, tokens[start : start + PAGE_TOKENS])
            if parent not in self._marked:
                break
            pages += 1
        return pages
