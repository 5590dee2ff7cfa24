"""Pages that hold only what their file holds go; what was written stays."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.core import library_pages
from forebay.core.library_pages import release_library_pages

MIB = 1 << 20
READ, WRITE = mmap.PROT_READ, mmap.PROT_WRITE

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Mapping:
    """1 MiB of a file in memory, every page touched. It stays mapped until the tests end."""

    def __init__(self, path: Path, protection: int, flags: int = mmap.MAP_PRIVATE) -> None:
        with path.open("r+b") as file:
            self.address = libc.mmap(None, MIB, protection, flags, file.fileno(), 0)
        assert self.content() == path.read_bytes()

    def content(self) -> bytes:
        return ctypes.string_at(self.address, MIB)

    def write(self, data: bytes) -> None:
        ctypes.memmove(self.address + MIB // 2, data, len(data))

    def protect(self, protection: int) -> None:
        assert libc.mprotect(self.address, MIB, protection) == 0

    @property
    def resident(self) -> int:
        """Bytes."""
        lines = iter(Path("/proc/self/smaps").read_text().splitlines())
        assert any(line.startswith(f"{self.address:08x}-") for line in lines)
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Rss:"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of 1 MiB."""
    file = tmp_path / "libnothing.so"
    file.write_bytes(bytes(range(256)) * (MIB // 256))
    return file


def test_pages_of_a_file_go_and_come_back_when_read(path: Path) -> None:
    mapping = Mapping(path, READ)
    assert mapping.resident == MIB
    assert release_library_pages() >= MIB
    assert mapping.resident == 0
    assert mapping.content() == path.read_bytes()


def test_pages_written_before_they_became_read_only_stay(path: Path) -> None:
    mapping = Mapping(path, READ | WRITE)
    mapping.write(b"relocated")
    mapping.protect(READ)
    written = mapping.content()
    release_library_pages()
    assert mapping.content() == written != path.read_bytes()


def test_memory_that_may_be_written_and_shared_memory_stay(path: Path) -> None:
    private = Mapping(path, READ | WRITE)
    private.write(b"own")
    shared = Mapping(path, READ, mmap.MAP_SHARED)
    release_library_pages()
    assert b"own" in private.content()
    assert (private.resident, shared.resident) == (MIB, MIB)


def test_without_proc_nothing_happens(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapping = Mapping(path, READ)
    monkeypatch.setattr(library_pages, "_SMAPS", path.parent / "none")
    assert release_library_pages() == 0
    assert mapping.resident == MIB


def test_a_process_with_torch_gives_its_libraries_back_and_computes_on() -> None:
    code = """
import torch
from forebay.core.library_pages import release_library_pages
x = torch.arange(10_000.0).reshape(100, 100)
before = (x @ x).sum()
released = release_library_pages()
print(released, release_library_pages())
if (x @ x).sum() != before or not torch.linalg.inv(torch.eye(5)).equal(torch.eye(5)):
    raise SystemExit("it computes otherwise")
"""
    ran = subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True, text=True)
    first, again = map(int, ran.stdout.split())
    assert first > 32 * MIB
    assert again < first / 4
