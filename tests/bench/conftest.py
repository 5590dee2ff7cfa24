"""For all tests of the benchmarks: servers in tests give nothing back after a load, so nobody waits for it."""

from __future__ import annotations

import pytest

from forebay.bench.compare import serving


@pytest.fixture(autouse=True)
def no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is read right after a load."""
    monkeypatch.setattr(serving, "_SETTLED_S", 0.0)
