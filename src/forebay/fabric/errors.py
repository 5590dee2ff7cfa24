"""What can go wrong with a page below the device. None of these ends a request: the page is computed again."""

from __future__ import annotations

from forebay.core.errors import ForebayError


class CorruptPageError(ForebayError):
    """A page's bytes are not those that were stored. It is dropped before this is raised."""


class TierError(ForebayError):
    """A tier could not do what was asked (input or output failed, it is full, or it is being closed)."""


class LeaseError(ForebayError):
    """A lease was used after its release, or before its page was there."""
