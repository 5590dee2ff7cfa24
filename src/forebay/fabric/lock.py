"""The lock on a cache directory: one server writes to it. Readers need none."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from forebay.core.errors import ConfigError


class DirectoryLock:
    """Held until `close`, or until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigError when another process holds it."""
        path = folder / "lock"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise ConfigError(
                f"The cache directory {folder} is in use by another server (process {holder}). "
                f"Stop that server, or give this one another --cache-dir."
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Let others in."""
        os.close(self._fd)
