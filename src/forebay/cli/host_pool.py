"""How a host pool is written on the command line: SIZE[,path=PATH][,numa=NODE]."""

from __future__ import annotations

from pathlib import Path

from forebay.cli.options import parse_size
from forebay.fabric.memory import HostMemory


def parse_host_pool(text: str) -> HostMemory:
    """The memory that "4GiB", "64GiB,path=/dev/dax0.0" or "8GiB,numa=1" names.

    Raises ValueError saying what is understood.
    """
    size, *rest = text.split(",")
    path: Path | None = None
    numa: int | None = None
    for item in rest:
        name, _, value = item.partition("=")
        if name == "path" and value:
            path = Path(value)
        elif name == "numa" and value.isdecimal() and int(value) < 1024:
            numa = int(value)
        else:
            raise ValueError(f"{item!r} is not understood; write SIZE, SIZE,path=PATH or SIZE,numa=NODE.")
    return HostMemory(parse_size(size), path, numa)
