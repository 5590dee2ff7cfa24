"""kill -9 while pages are written: whatever was acknowledged is read back whole, and nothing is ever read wrong."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

from tests.fabric.fabric_pages import content, disk_usage, read_all, ref

from forebay.fabric.disk_store import DiskStore
from forebay.fabric.metrics import Metrics

ROUNDS = 8
LIMIT = 3 << 20
_WRITER = """
import sys
from pathlib import Path
from forebay.fabric.disk_store import DiskStore
from forebay.fabric.metrics import Metrics
from tests.fabric.fabric_pages import ref, stored
folder, first = Path(sys.argv[1]), int(sys.argv[2])
store = DiskStore(folder, int(sys.argv[3]), Metrics(), float(first), extent_bytes=1 << 17)
print("open", flush=True)
number = first
while True:
    pages = [ref(number + i) for i in range(5)]
    kept = store.store([stored(page, 3000) for page in pages], float(number))
    for i, stays in enumerate(kept):
        if stays:
            print(number + i, flush=True)
    number += 5
    if number % 50 == 0:
        store.prune(float(number), unused_for=400.0)
        store.sweep(float(number))
"""


def write_until_killed(folder: Path, first: int, lines: int) -> list[int]:
    """Pages that a writer acknowledged before it was killed, some time after so many."""
    command = [sys.executable, "-c", _WRITER, str(folder), str(first), str(LIMIT)]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        heard = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        heard += process.stdout.readlines()
    return [int(line) for line in heard if line.endswith("\n")]


def test_nothing_acknowledged_is_lost_and_nothing_wrong_is_read(tmp_path: Path) -> None:
    dice = random.Random(5)
    first = 0
    for _ in range(ROUNDS):
        acknowledged = write_until_killed(tmp_path, first, dice.randint(1, 120))
        last = acknowledged[-1]
        metrics = Metrics()
        store = DiskStore(tmp_path, LIMIT, metrics, float(last))
        written = [ref(number) for number in range(last + 10)]
        found = read_all(store, written, float(last))
        for page, data in zip(written, found, strict=True):
            assert data in {None, content(page.id, 3000)}
        newest = [number for number in acknowledged if number > last - 300]
        assert [number for number in newest if found[number] is None] == []
        assert metrics.snapshot().corrupt_disk == 0
        store.close()
        assert disk_usage(tmp_path) <= LIMIT
        first = last + 10
