"""Writing ranges of files: the same bytes whichever way is taken, and direct writes leave the page cache alone."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from forebay.fabric import writing
from forebay.fabric.reading import cached_bytes
from forebay.fabric.writing import write_range

PAGE = 4096


class File:
    """A new file of this user."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)

    def write(self, pieces: Sequence[memoryview], offset: int) -> None:
        write_range(self.path, self.fd, pieces, offset)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    made = File(tmp_path / "file")
    yield made
    os.close(made.fd)


def filled(count: int, size: int = PAGE, shift: int = 0) -> list[memoryview]:
    """Read-only pieces of random bytes; they begin at whole memory pages, and `shift` bytes behind them."""
    region = mmap.mmap(-1, count * size + PAGE)
    region.write(os.urandom(len(region)))
    view = memoryview(region).toreadonly()[shift:]
    return [view[i * size : (i + 1) * size] for i in range(count)]


def joined(pieces: Sequence[memoryview]) -> bytes:
    return b"".join(map(bytes, pieces))


def test_whole_pages_are_written_past_the_page_cache(file: File) -> None:
    pieces = filled(300)
    file.write(pieces[:40], 0)
    file.write(pieces[40:], 40 * PAGE)
    try:
        os.close(os.open(file.path, os.O_WRONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("no direct writes here")
    # Half is what a kernel that can't say gives.
    assert cached_bytes(file.fd, 0, 300 * PAGE) in {0, 150 * PAGE}
    assert file.path.read_bytes() == joined(pieces)


@pytest.mark.parametrize(("size", "shift", "offset"), [(PAGE, 7, 0), (5000, 0, 0), (PAGE, 0, 100)])
def test_what_is_not_aligned_is_written_all_the_same(file: File, size: int, shift: int, offset: int) -> None:
    pieces = filled(5, size, shift)
    file.write(pieces, offset)
    assert file.path.read_bytes()[offset:] == joined(pieces)


def test_a_direct_write_that_is_refused_half_way_is_written_whole(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(path: Path, pieces: Sequence[memoryview], offset: int) -> None:
        os.pwritev(file.fd, pieces[:2], offset)
        raise OSError(errno.EINVAL, "no further")

    monkeypatch.setattr(writing, "_write_directly", half)
    pieces = filled(4)
    file.write(pieces, PAGE)
    assert file.path.read_bytes()[PAGE:] == joined(pieces)


def test_a_disk_that_fails_is_an_error(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, pieces: Sequence[memoryview], offset: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(writing, "_write_directly", fail)
    with pytest.raises(OSError, match="full"):
        file.write(filled(2), 0)
