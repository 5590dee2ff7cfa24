"""Speed of the tiers below the device, each beside what the machine does with the same bytes. Prints a table.

python bench/storage.py [--pages 512] [--page-bytes 368640] [--folder DIR] [--index-pages 100000] [--json]
The page size is SmolLM2-135M's (bf16): 512 pages are its whole context of 8,192 tokens.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from forebay.fabric.checksum import address_of, page_checksum
from forebay.fabric.disk_store import DiskStore
from forebay.fabric.extents import Place
from forebay.fabric.host_pool import HostPool
from forebay.fabric.index import Index, Record
from forebay.fabric.jobs import LoadJob
from forebay.fabric.loader import Loader, take_leases
from forebay.fabric.memory import HostMemory
from forebay.fabric.metrics import Metrics
from forebay.fabric.pool_layout import aligned, data_start
from forebay.fabric.protocol import StoredPage
from forebay.kv.tiers import PageRef

TRIES = 5
READ_SIZE = 8 << 20
HUGE = 2 << 20


def best(
    work: Callable[[], object],
    before: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The shortest of a few tries, in seconds of `clock`."""
    times = []
    for _ in range(TRIES):
        before()
        began = clock()
        work()
        times.append(clock() - began)
    return min(times)


def make_refs(count: int) -> list[PageRef]:
    """One long sequence."""
    ids = [os.urandom(32) for _ in range(count + 1)]
    return [PageRef(ids[i + 1], ids[i], "bench", "chat", 16 * (i + 1)) for i in range(count)]


def device_memory(size: int) -> memoryview:
    """Memory as an engine's device pages have it: aligned, and in huge pages where there are any."""
    region = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        region.madvise(mmap.MADV_HUGEPAGE)
    start = -address_of(memoryview(region)) % HUGE
    return memoryview(region)[start : start + size]


class Setup:
    """A device of random bytes, a pool and a store that hold one sequence."""

    def __init__(self, folder: Path, pages: int, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.total = pages * page_bytes
        self.device, self.target = device_memory(self.total), device_memory(self.total)
        self.device[:] = memoryview(np.random.default_rng(1).integers(0, 256, self.total, np.uint8)).cast("B")
        self.target[:] = self.device
        self.refs = make_refs(pages)
        self.metrics = Metrics()
        memory = HostMemory(data_start(pages) + pages * aligned(page_bytes))
        self.pool = HostPool(memory, page_bytes, self.metrics)
        self.store = DiskStore(folder, 4 * self.total + (64 << 20), self.metrics, time.time())
        self.loader = Loader(
            self.pool, self.store, self.metrics, time.time, name="reads", threads=4, piece_bytes=READ_SIZE
        )
        self.folder = folder

    def address(self, buffer: memoryview, i: int) -> int:
        return address_of(buffer) + i * self.page_bytes

    def page(self, i: int) -> memoryview:
        return self.device[i * self.page_bytes : (i + 1) * self.page_bytes]

    def copy_pages(self) -> None:
        for i in range(len(self.refs)):
            ctypes.memmove(self.address(self.target, i), self.address(self.device, i), self.page_bytes)

    def save_to_host(self) -> None:
        for i, ref in enumerate(self.refs):
            slot = self.pool.reserve(ref, 0.0)
            if slot is not None:
                slot.fill(self.address(self.device, i))
                slot.commit()

    def load(self) -> None:
        addresses = [self.address(self.target, i) for i in range(len(self.refs))]
        job = LoadJob(1, self.refs, addresses, take_leases(self.pool, self.refs), time.monotonic())
        done = self.loader.run(job)
        if done.pages != len(self.refs):
            raise ValueError(f"only {done.pages} pages came back right")

    def compare(self) -> None:
        if not np.array_equal(np.frombuffer(self.target, np.uint8), np.frombuffer(self.device, np.uint8)):
            raise ValueError("what was loaded is not what was saved")
        np.frombuffer(self.target, np.uint8)[:] = 0

    def save_to_disk(self) -> None:
        for start in range(0, len(self.refs), 16):
            chunk = range(start, min(start + 16, len(self.refs)))
            pages = [
                StoredPage(self.refs[i], page_checksum(self.refs[i].id, self.page(i)), self.page(i)) for i in chunk
            ]
            if not all(self.store.store(pages, time.time())):
                raise ValueError("the store refused pages")

    def drop_page_cache(self) -> None:
        for path in self.folder.rglob("*.kv"):
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)

    def raw_read(self) -> None:
        for path in sorted(self.folder.rglob("*.kv")):
            fd = os.open(path, os.O_RDONLY)
            offset = 0
            while count := os.preadv(fd, [self.target[offset % self.total :][:READ_SIZE]], offset):
                offset += count
            os.close(fd)


def measure(setup: Setup) -> dict[str, float]:
    """GB/s of each way. Copies in memory by processor time, of all threads, so that what else runs counts less."""
    found = {"memcpy": best(setup.copy_pages, clock=time.thread_time)}
    found["host_save_new_memory"] = best_once(setup.save_to_host)
    found["host_save"] = best(setup.save_to_host, setup.pool.clear, time.thread_time)
    found["host_load"] = best(setup.load, clock=time.process_time)
    setup.compare()
    found["disk_save"] = best(setup.save_to_disk, setup.store.clear)
    found["raw_read"] = best(setup.raw_read, setup.drop_page_cache)

    def cold() -> None:
        setup.pool.clear()
        setup.drop_page_cache()

    found["disk_load"] = best(setup.load, cold)
    setup.compare()
    return {name: setup.total / seconds / 1e9 for name, seconds in found.items()}


def best_once(work: Callable[[], object]) -> float:
    """One try, for what is different the first time."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def measure_start(folder: Path, pages: int) -> tuple[float, float]:
    """Seconds, and seconds of work, to open a store that names so many pages (in extents that are sparse files)."""
    DiskStore(folder, 1 << 50, Metrics(), 0.0).close()
    index = Index(folder)
    per_extent, size = 200, 368640
    now = time.time()
    refs = make_refs(pages)
    records = [
        Record(refs[i], Place(1 + i // per_extent, i % per_extent * size, size), b"c" * 16, now, now)
        for i in range(pages)
    ]
    index.add(records)
    index.close()
    for number in range(1, 2 + (pages - 1) // per_extent):
        with (folder / "extents" / f"{number:08d}.kv").open("wb") as file:
            file.truncate(per_extent * size)
    began, worked = time.perf_counter(), time.process_time()
    store = DiskStore(folder, 1 << 50, Metrics(), now)
    took = time.perf_counter() - began, time.process_time() - worked
    if store.pages != pages:
        raise ValueError(f"{store.pages} of {pages} pages were found")
    store.close()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=512)
    parser.add_argument("--page-bytes", type=int, default=368640)
    parser.add_argument("--folder", type=Path, default=None, help="where to write; by default a temporary folder")
    parser.add_argument("--index-pages", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="forebay-bench-", dir=options.folder))
    try:
        rates = measure(Setup(folder / "store", options.pages, options.page_bytes))
        start = measure_start(folder / "index", options.index_pages)
    finally:
        shutil.rmtree(folder)
    found = {
        "gbps": rates,
        "host_load_of_memcpy": rates["host_load"] / rates["memcpy"],
        "disk_load_of_raw_read": rates["disk_load"] / rates["raw_read"],
        "start_s": start[0],
        "start_processor_s": start[1],
        "index_pages": options.index_pages,
    }
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for name, rate in rates.items():
        print(f"{name:<22} {rate:7.2f} GB/s")
    print(f"host load: {found['host_load_of_memcpy']:.0%} of memcpy")
    print(f"disk load: {found['disk_load_of_raw_read']:.0%} of raw read")
    print(f"start with {options.index_pages} pages: {start[0]:.2f} s ({start[1]:.2f} s of work)")


if __name__ == "__main__":
    main()
