"""Reading ranges of files: the same bytes whichever way is taken, and direct reads leave the page cache alone."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.fabric import reading
from forebay.fabric.reading import cached_bytes, read_range

SIZE = 64 * 4096


class File:
    """A file with known content, on disk and not in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content = os.urandom(SIZE)
        path.write_bytes(self.content)
        self.fd = os.open(path, os.O_RDWR)
        self.forget()

    def forget(self) -> None:
        os.fsync(self.fd)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, pieces: list[memoryview], offset: int) -> int:
        return read_range(self.path, self.fd, pieces, offset)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    made = File(tmp_path / "file")
    yield made
    os.close(made.fd)


def aligned_pieces(count: int, size: int = 4096) -> list[memoryview]:
    region = memoryview(mmap.mmap(-1, count * size))
    return [region[i * size : (i + 1) * size] for i in range(count)]


def joined(pieces: list[memoryview]) -> bytes:
    return b"".join(map(bytes, pieces))


def direct_reads_are_told(file: File) -> bool:
    """Whether this file system and kernel let a test see that the page cache was passed by."""
    try:
        os.close(os.open(file.path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return cached_bytes(file.fd, 0, SIZE) == 0


def test_aligned_memory_is_read_into_past_the_page_cache(file: File) -> None:
    if not direct_reads_are_told(file):
        pytest.skip("no direct reads here, or a kernel that can't say what is cached")
    pieces = aligned_pieces(40)
    assert file.read(pieces, 8 * 4096) == 40 * 4096
    assert joined(pieces) == file.content[8 * 4096 : 48 * 4096]
    assert cached_bytes(file.fd, 0, SIZE) == 0


def test_other_memory_is_read_into_through_the_page_cache(file: File) -> None:
    pieces = [memoryview(bytearray(size)) for size in (5000, 1, 12000)]
    assert file.read(pieces, 100) == 17001
    assert joined(pieces) == file.content[100:17101]
    assert cached_bytes(file.fd, 0, 16384) > 0


def test_what_is_cached_is_read_from_there(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    file.path.read_bytes()

    def refuse(path: Path, pieces: list[memoryview], offset: int) -> int:
        raise AssertionError("a direct read of what is in memory")

    monkeypatch.setattr(reading, "_read_directly", refuse)
    pieces = aligned_pieces(4)
    assert file.read(pieces, 0) == 4 * 4096
    assert joined(pieces) == file.content[: 4 * 4096]


def test_bytes_that_were_just_written_are_read(file: File) -> None:
    os.pwrite(file.fd, b"x" * 4096, 4096)
    pieces = aligned_pieces(64)
    assert file.read(pieces, 0) == SIZE
    assert joined(pieces) == file.content[:4096] + b"x" * 4096 + file.content[8192:]


@pytest.mark.parametrize("end", [4096 * 3, 4096 * 2 + 100])
def test_a_file_that_ends_early_gives_what_there_is(file: File, end: int) -> None:
    os.ftruncate(file.fd, end)
    file.forget()
    pieces = aligned_pieces(5)
    assert file.read(pieces, 0) == end
    assert joined(pieces)[:end] == file.content[:end]


def test_a_disk_without_direct_reads_is_read_all_the_same(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, pieces: list[memoryview], offset: int) -> int:
        raise OSError(errno.EINVAL, "not here")

    monkeypatch.setattr(reading, "_read_directly", refuse)
    pieces = aligned_pieces(4)
    assert file.read(pieces, 0) == 4 * 4096
    assert joined(pieces) == file.content[: 4 * 4096]


def test_a_disk_that_fails_is_an_error(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, pieces: list[memoryview], offset: int) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(reading, "_read_directly", fail)
    monkeypatch.setattr(reading, "cached_bytes", lambda fd, offset, size: 0)
    with pytest.raises(OSError, match="broken"):
        file.read(aligned_pieces(4), 0)


def test_a_system_that_cannot_say_what_is_cached_reads_through_the_cache(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_CACHESTAT", 100_000)
    assert 2 * cached_bytes(file.fd, 0, SIZE) >= SIZE
    pieces = aligned_pieces(700, 256)
    assert file.read(pieces, 0) == 700 * 256
    assert joined(pieces) == file.content[: 700 * 256]
