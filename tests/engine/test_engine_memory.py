"""How many pages and how much context a worker gets."""

from __future__ import annotations

import pytest

from forebay.core.errors import ConfigError
from forebay.engine.memory import context_limit, kv_pages

GIB = 1 << 30


def test_a_quarter_of_free_memory_at_most_what_all_sequences_can_fill() -> None:
    assert kv_pages(1 << 20, None, 4 * GIB, 1 << 20, 64) == 1024
    assert kv_pages(1 << 20, None, 400 * GIB, 1 << 20, 64) == 8 * 1024
    assert kv_pages(1 << 10, None, 4 * GIB, 160, 3) == 30


def test_what_is_asked_for_is_what_is_made() -> None:
    assert kv_pages(1 << 20, 100 << 20, GIB, 160, 1) == 100


def test_too_much_and_too_little_are_refused_with_the_numbers() -> None:
    with pytest.raises(ConfigError, match=r"2\.00 GiB, but only 1\.00 GiB"):
        kv_pages(1 << 20, 2 * GIB, GIB, 160, 1)
    with pytest.raises(ConfigError, match="at least 2"):
        kv_pages(1 << 20, 1 << 20, GIB, 160, 1)


def test_context_is_the_models_or_what_the_pages_hold() -> None:
    assert context_limit(8192, None, 1000) == 8192
    assert context_limit(8192, None, 100) == 1600
    assert context_limit(8192, 512, 100) == 512
    with pytest.raises(ConfigError, match="context is 8192"):
        context_limit(8192, 10000, 1000)
    with pytest.raises(ConfigError, match="holds 1600"):
        context_limit(8192, 2000, 100)
