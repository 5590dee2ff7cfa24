"""What is read of the processor on this machine, and which compiler is taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forebay.kernels.cpu import cpu_info, find_compiler


def test_this_machine() -> None:
    info = cpu_info()
    assert info.model
    assert 1 <= info.usable_cores <= info.physical_cores <= len(os.sched_getaffinity(0))
    assert info.compiler == find_compiler()


def test_the_compiler_is_the_one_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "my-compiler"
    own.write_text("")
    own.chmod(0o755)
    monkeypatch.setenv("CXX", str(own))
    assert find_compiler() == str(own)
    monkeypatch.setenv("CXX", "not-there")
    assert find_compiler() is None
