"""What is said about a page between the engine and the tiers below it: names and places, no bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from forebay.kv.identity import PUBLIC


class Where(StrEnum):
    """In which tier a page was found; the fastest one when it is in several."""

    HOST = "host"
    DISK = "disk"
    LOADING = "loading"
    """A copy into the host pool is under way."""
    MISS = "miss"


def readable(owner: str, tenant: str) -> bool:
    """Whether a tenant may read a page: its own, and what is public."""
    return owner in (tenant, PUBLIC)


class PageRef(NamedTuple):
    """A page as the lower tiers know it."""

    id: bytes
    """`kv.page_id` of its tokens (32 bytes); a partly filled page has the id of the tokens that it has."""
    parent: bytes
    """The id of the page before it, or the root."""
    tenant: str
    retention: str
    """Name of its retention class."""
    end: int
    """Tokens of the sequence up to the end of this page."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Where the leading pages of a prefix are; it ends before the first miss."""

    places: Sequence[Where]

    @property
    def pages(self) -> int:
        """How many leading pages can be loaded."""
        return len(self.places)

    def count(self, where: Where) -> int:
        """How many of them are in one tier."""
        return sum(place is where for place in self.places)
