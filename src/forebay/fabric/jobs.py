"""What is asked of the threads that move pages, and what they answer. Data only."""

from __future__ import annotations

import threading
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, field

from forebay.fabric.lease import Lease
from forebay.kv.tiers import PageRef


@dataclass(frozen=True, slots=True)
class SaveJob:
    """Copy a page from the device to the host pool."""

    ref: PageRef
    address: int
    tag: int


@dataclass(slots=True, eq=False)
class LoadJob:
    """Copy pages to the device, in order, until one can't be had."""

    ticket: int
    refs: Sequence[PageRef]
    addresses: MutableSequence[int]
    """Where each page is to lie; once it is there, where it lies."""
    leases: list[Lease | None]
    """Those of the host pool, taken when the job was asked for; None where the page is (only) on disk."""
    asked: float
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Saved:
    """A page's write-through ended: the device page may change or go from now on."""

    page: bytes
    tag: int
    """As given to `save`."""
    kept: bool
    """Whether the page is in the host pool now."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A load ended: nothing is written to its device pages from now on."""

    ticket: int
    pages: int
    """How many leading pages are on the device, checked. Fewer than asked for: the rest is to be computed."""
    wanted: int
    host: int
    """How many of them came from the host pool."""
    disk: int
    """How many of them came from disk."""
    seconds: float
    """From asking to the end."""
    addresses: Sequence[int] = ()
    """Where the device pages lie from now on: other places than asked for where memory is in common, also for pages
    behind those that count."""


Completion = Saved | Loaded
