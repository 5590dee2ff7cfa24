"""Compiles the C++ sources for this machine, once, and keeps the library in the user's cache. It loads nothing."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from forebay.core.location import cache_folder
from forebay.kernels.cpu import cpu_flags, find_compiler

SOURCES = Path(__file__).with_name("csrc")
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fno-strict-aliasing", "-fPIC", "-fopenmp")
"""Scratch memory holds floats, pairs of bf16 and blocks of integers in turn: hence no strict aliasing."""
_TIMEOUT_S = 300


class BuildError(Exception):
    """The native kernels can't be built here; the message says why in one line."""


def built_library(*definitions: str) -> tuple[Path, float]:
    """The library for these sources, this compiler and this processor, and the seconds spent compiling (0 when cached).

    `definitions` (`-DNAME=VALUE`) are for tests. Processes that ask at the same time wait for one build. Raises
    BuildError without a compiler, when it fails, or when the cache can't be written.
    """
    compiler = find_compiler()
    if compiler is None:
        raise BuildError("no C++ compiler was found (install g++, or set CXX)")
    library = cache_folder("kernels") / f"forebay-{_key(compiler, definitions)}.so"
    if library.exists():
        return library, 0.0
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with library.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if library.exists():
                return library, 0.0
            started = time.monotonic()
            _compile(compiler, definitions, library)
            return library, time.monotonic() - started
    except OSError as error:
        raise BuildError(f"the cache folder {library.parent} can't be written: {error.strerror}") from error


def _key(compiler: str, definitions: Sequence[str]) -> str:
    """Names everything that the compiled code depends on."""
    digest = hashlib.blake2b(digest_size=12)
    version = _run([compiler, "--version"]).stdout
    for part in (
        version,
        " ".join((*_FLAGS, *definitions)),
        " ".join(sorted(cpu_flags())),
        metadata.version("torch"),
        str(_torch_openmp()),
    ):
        digest.update(part.encode() + b"\0")
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def _torch_openmp() -> Path | None:
    """torch's own OpenMP library. Linked by its soname, so that our threads are torch's: two pools would spin against
    each other.
    """
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob("lib/libgomp*.so*"))), None)


def _compile(compiler: str, definitions: Sequence[str], library: Path) -> None:
    """Compile every source at once, link, and move the result into place in one step."""
    sources = sorted(SOURCES.glob("*.cpp"))
    openmp = _torch_openmp()
    with tempfile.TemporaryDirectory(dir=library.parent) as folder, ThreadPoolExecutor(len(sources)) as pool:
        objects = [str(Path(folder) / f"{source.stem}.o") for source in sources]
        command = [compiler, *_FLAGS, *definitions, "-c"]
        commands = [[*command, str(source), "-o", made] for source, made in zip(sources, objects, strict=True)]
        for result in pool.map(_run, commands):
            _raise_if_failed(result)
        linked = Path(folder) / library.name
        runtime = str(openmp) if openmp else "-fopenmp"
        _raise_if_failed(_run([compiler, "-shared", *objects, runtime, "-o", str(linked)]))
        linked.replace(library)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{command[0]} took more than {_TIMEOUT_S} s") from error
    except OSError as error:
        raise BuildError(f"{command[0]} can't be run: {error.strerror}") from error


def _raise_if_failed(result: subprocess.CompletedProcess[str]) -> None:
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or ["it gave no message"]
        telling = next((line for line in lines if "error" in line), lines[0])
        raise BuildError(f"the compiler failed: {telling}")
