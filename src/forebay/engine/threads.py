"""How compute threads wait for each other: environment variables that OpenMP reads when torch is first imported."""

from __future__ import annotations

import os

THREAD_SETTINGS = {"GOMP_SPINCOUNT": "4000"}
"""Wait actively for some 20 µs at a barrier, then sleep.

OpenMP's default, milliseconds, makes a step several times slower as soon as another process wants a core, and the API's
process always does. Sleeping at once costs half of a quiet machine's speed. The figures are in docs/performance.md.
"""


def set_thread_defaults() -> None:
    """Apply the settings to this process, where the user has not chosen others. Call it before torch is imported."""
    for name, value in THREAD_SETTINGS.items():
        os.environ.setdefault(name, value)
