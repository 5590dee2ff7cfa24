"""Where Forebay keeps what it can make again."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.core.location import cache_folder


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_CACHE", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    assert cache_folder("kernels") == Path("/own/kernels")
    monkeypatch.delenv("FOREBAY_CACHE")
    assert cache_folder("kernels") == Path("/shared/forebay/kernels")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder("kernels") == Path.home() / ".cache" / "forebay" / "kernels"
