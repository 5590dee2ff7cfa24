"""Memory that other processes of this machine can map: anonymous by default, or a file on tmpfs, hugetlbfs, DAX or CXL.

An anonymous region (memfd) needs no room in /dev/shm, which containers keep small, and goes with its last process
however that ends. Others of the same user map it through the path that `SharedMemory.path` names.
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import mmap
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from forebay.core.errors import ConfigError

log = logging.getLogger(__name__)

_NAME = "forebay-kv-"
_HUGE = 2 << 20
_MPOL_BIND = 2
_MBIND = {"x86_64": 237, "aarch64": 235}


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Where the host pool's memory comes from."""

    size: int
    """Bytes; rounded up to whole huge pages for a `path`."""
    path: Path | None = None
    """A folder to put a file in (such as a hugetlbfs mount), a file not there yet, or a device (/dev/dax0.0)."""
    numa: int | None = None
    """The NUMA node that the memory should come from, where the system can say so."""


class SharedMemory:
    """One mapped region. Its creator owns it: `close` unmaps it and removes its file."""

    def __init__(self, fd: int, size: int, path: Path, *, unlink: bool) -> None:
        self.size = size
        self.path = path
        self._fd = fd
        self._unlink = unlink
        self._map = mmap.mmap(fd, size)
        self.buffer = memoryview(self._map)
        self.address = ctypes.addressof(ctypes.c_ubyte.from_buffer(self._map))

    def close(self) -> None:
        """Unmap and remove. Memory that someone still holds a view of is unmapped when that view goes."""
        if self._fd < 0:
            return
        self.buffer.release()
        try:
            self._map.close()
        except BufferError:
            log.debug("%s stays mapped until its last view is gone", self.path)
        os.close(self._fd)
        self._fd = -1
        if self._unlink:
            self.path.unlink(missing_ok=True)


def create_memory(wanted: HostMemory) -> SharedMemory:
    """A new region, zeroed or not. Memory is committed as it is first written, except on devices.

    Raises ConfigError when the path can't be used or is too small.
    """
    if wanted.path is None:
        fd = os.memfd_create("forebay-kv", os.MFD_CLOEXEC)
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, wanted.size)
        region = SharedMemory(fd, wanted.size, Path(f"/proc/{os.getpid()}/fd/{fd}"), unlink=False)
    else:
        region = _create_at(wanted.path, -(-wanted.size // _HUGE) * _HUGE)
    if wanted.numa is not None:
        _bind(region, wanted.numa)
    return region


def _create_at(path: Path, size: int) -> SharedMemory:
    try:
        if path.is_dir():
            _remove_leftovers(path)
            path /= f"{_NAME}{os.getpid()}"
        device = path.is_char_device()
        flags = os.O_RDWR | os.O_CLOEXEC
        fd = os.open(path, flags if device else flags | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if not device:
                fcntl.flock(fd, fcntl.LOCK_EX)
                os.ftruncate(fd, size)
            return SharedMemory(fd, size, path, unlink=not device)
        except OSError:
            os.close(fd)
            raise
    except (OSError, ValueError) as error:
        raise ConfigError(f"The host pool can't have {size} bytes at {path}: {error}.") from error


def _remove_leftovers(folder: Path) -> None:
    """Files of servers that were killed: nobody holds their locks."""
    for path in folder.glob(f"{_NAME}*"):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        except BlockingIOError:
            continue
        finally:
            os.close(fd)


def open_memory(path: Path) -> memoryview:
    """Map another process's region, read only. Raises OSError when it is gone or not ours to read."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
    finally:
        os.close(fd)


def _bind(region: SharedMemory, node: int) -> None:
    """Ask for memory of one NUMA node. Where the system refuses, a line in the log says so, and any memory will do."""
    number = _MBIND.get(platform.machine())
    if number is None:
        log.warning("memory can't be bound to a NUMA node on %s", platform.machine())
        return
    mask = (ctypes.c_ulong * 16)()
    mask[node // 64] = 1 << (node % 64)
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(
        ctypes.c_long(number),
        ctypes.c_void_p(region.address),
        ctypes.c_ulong(region.size),
        ctypes.c_int(_MPOL_BIND),
        mask,
        ctypes.c_ulong(1024),
        ctypes.c_uint(0),
    )
    if result != 0:
        log.warning("memory could not be bound to NUMA node %d: %s", node, os.strerror(ctypes.get_errno()))
