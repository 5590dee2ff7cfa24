"""How a host pool is written on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.cli.host_pool import parse_host_pool
from forebay.fabric.memory import HostMemory


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("4GiB", HostMemory(4 << 30)),
        ("512MiB,numa=1", HostMemory(512 << 20, numa=1)),
        ("1GiB,path=/dev/dax0.0", HostMemory(1 << 30, Path("/dev/dax0.0"))),
        ("1GiB,path=/mnt/huge,numa=0", HostMemory(1 << 30, Path("/mnt/huge"), 0)),
    ],
)
def test_sizes_paths_and_nodes(text: str, memory: HostMemory) -> None:
    assert parse_host_pool(text) == memory


@pytest.mark.parametrize("text", ["", "path=/x", "1GiB,path=", "1GiB,numa=x", "1GiB,numa=-1", "1GiB,node=1", "1GiB,"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no size|not understood"):
        parse_host_pool(text)
