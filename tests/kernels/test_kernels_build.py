"""Building, the cache, and what happens where nothing can be built."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forebay.core.errors import ConfigError
from forebay.kernels import build, load_kernels
from forebay.kernels.build import BuildError, built_library
from forebay.kernels.native import NativeKernels

COMPILER = shutil.which("g++") or shutil.which("c++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two one-line sources and a compiler that notes each call; returns the folder of both and the cache."""
    sources = tmp_path / "csrc"
    sources.mkdir()
    (sources / "a.cpp").write_text('extern "C" int one() { return 1; }\n')
    (sources / "b.cpp").write_text('extern "C" int two() { return 2; }\n')
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\n[ "$1" = --version ] || echo call >> "{tmp_path}/calls"\nexec {COMPILER} "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setattr(build, "SOURCES", sources)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("FOREBAY_CACHE", str(tmp_path / "cache"))
    return tmp_path


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text().splitlines())


@needs_compiler
def test_a_second_start_compiles_nothing(small: Path) -> None:
    first, seconds = built_library()
    assert seconds > 0
    assert first.parent == small / "cache" / "kernels"
    assert calls(small) == 3, "two sources and the link"
    assert built_library() == (first, 0.0)
    assert calls(small) == 3
    assert {path.suffix for path in first.parent.iterdir()} == {".so", ".lock"}, "no temporary file is left"


@needs_compiler
def test_another_source_is_another_library(small: Path) -> None:
    first, _ = built_library()
    (small / "csrc" / "a.cpp").write_text('extern "C" int one() { return 11; }\n')
    second, seconds = built_library()
    assert second != first
    assert seconds > 0


@needs_compiler
def test_builders_at_the_same_time_compile_once(small: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        libraries = list(pool.map(lambda _: built_library()[0], range(3)))
    assert len(set(libraries)) == 1
    assert calls(small) == 3


@needs_compiler
def test_a_failing_compiler_says_why_and_leaves_nothing(small: Path) -> None:
    (small / "csrc" / "a.cpp").write_text("this is not C++;\n")
    with pytest.raises(BuildError, match="error"):
        built_library()
    assert not list((small / "cache" / "kernels").glob("*.so"))


@needs_compiler
def test_a_cache_that_cannot_be_written(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (small / "file").write_text("")
    monkeypatch.setenv("FOREBAY_CACHE", str(small / "file"))
    with pytest.raises(BuildError, match="can't be written"):
        built_library()


def test_without_a_compiler_torch_serves_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    with caplog.at_level(logging.WARNING):
        assert load_kernels("auto").name == "torch"
    assert len(caplog.records) == 1
    assert "no C++ compiler was found" in caplog.text
    assert "slower" in caplog.text
    with pytest.raises(ConfigError, match="no C\\+\\+ compiler"):
        load_kernels("native")


@needs_compiler
def test_a_library_that_cannot_be_loaded_falls_back(small: Path, caplog: pytest.LogCaptureFixture) -> None:
    library, _ = built_library()
    library.write_bytes(b"not a library")
    assert load_kernels("auto").name == "torch"
    assert "native kernels can't be used" in caplog.text


@needs_compiler
def test_a_library_without_our_functions_falls_back(small: Path) -> None:
    assert load_kernels("auto").name == "torch"


def test_backends_by_name(native: NativeKernels) -> None:
    assert load_kernels("torch").name == "torch"
    assert load_kernels("native").name.startswith("native-")
    with pytest.raises(ConfigError, match="'numba'"):
        load_kernels("numba")


def test_one_openmp_runtime_serves_torch_and_us(native: NativeKernels) -> None:
    code = (
        "import torch; from forebay.kernels import load_kernels; from forebay.kernels.library import openmp_libraries\n"
        "kernels = load_kernels('native'); x = torch.randn(64, 512)\n"
        "kernels.linear(x, kernels.pack(torch.randn(512, 512), torch.float32)); x @ x.T\n"
        "print(*openmp_libraries())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(result.stdout.split()) == 1, result.stdout
