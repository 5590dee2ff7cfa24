"""Device pages and host pool in one memory: in any order of writing, saving, evicting, loading and copying, every page
holds its own bytes, in the device and below, and what both have is there once."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.fabric.memory_tier import MemoryTier

from forebay.core.request import GenerateRequest, SamplingParams
from forebay.engine.device_pages import DevicePages, FramedPages
from forebay.fabric.checksum import memory_at
from forebay.fabric.errors import TierError
from forebay.fabric.host_pool import HostPool
from forebay.fabric.jobs import Loaded, LoadJob, SaveJob
from forebay.fabric.lease import Lease
from forebay.fabric.loader import Loader, take_leases
from forebay.fabric.memory import HostMemory
from forebay.fabric.metrics import Metrics
from forebay.fabric.pool_layout import data_start
from forebay.fabric.protocol import StoredPage
from forebay.fabric.saver import Saver
from forebay.kernels import PAGE_TOKENS, KvLayout
from forebay.kernels.torch_backend import TorchKernels
from forebay.kv.sequence_pages import SequencePages
from forebay.kv.tiers import PageRef
from forebay.scheduling import Row
from forebay.scheduling.sequence import Sequence

LAYOUT = KvLayout(layers=1, kv_heads=1, head_dim=8, dtype=torch.bfloat16)
SIZE = LAYOUT.page_bytes
TOKEN = SIZE // PAGE_TOKENS
PAGES, SLOTS = 5, 4
numbers = st.integers(0, PAGES - 1)
Tokens = tuple[int, ...]


def page_of(tokens: Tokens) -> PageRef:
    return PageRef(hashlib.blake2b(repr(tokens).encode(), digest_size=32).digest(), b"r" * 32, "t", "none", len(tokens))


def bytes_of(tokens: Tokens) -> bytes:
    return b"".join(hashlib.shake_128(bytes([token])).digest(TOKEN) for token in tokens)


def pool_memory(slots: int) -> HostMemory:
    return HostMemory(data_start(slots) + slots * 4096)


def row_of(number: int, start: int, tokens: int) -> Row:
    """A row that writes to one page only, which is the fourth of its sequence."""
    pages = SequencePages(root=b"", numbers=[0, 0, 0, number], start=3)
    request = GenerateRequest(id="row", prompt_ids=[1], sampling=SamplingParams(max_tokens=1))
    return Row(Sequence(request, 0.0, 0, pages), 3 * PAGE_TOKENS + start, tokens, samples=0, decode=False)


class PagesMachine(RuleBasedStateMachine):
    """An engine's pages with the threads' work done in turn. Which page holds what follows from the tokens written."""

    pages: DevicePages

    def __init__(self) -> None:
        super().__init__()
        self.metrics = Metrics()
        self.pages = self.make()
        self.pool = HostPool(pool_memory(SLOTS), SIZE, self.metrics, common=self.pages.common)
        assert self.pool.slots == SLOTS
        self.store = MemoryTier(6)
        self.saver = Saver(self.pool, self.metrics, lambda: self.now)
        self.loader = Loader(
            self.pool, self.store, self.metrics, lambda: 0.0, name="test", threads=1, piece_bytes=2 * SIZE
        )
        self.now = 0.0
        self.held: dict[int, Tokens] = {}
        """What each device page holds; pages that hold anything are missing."""
        self.known: dict[bytes, Tokens] = {}
        """What was ever saved, by page id."""
        self.leases: list[tuple[Tokens, Lease]] = []
        self.most = 0
        """The most different contents that there were at one time."""

    def make(self) -> DevicePages:
        return FramedPages(LAYOUT, PAGES, SLOTS, TorchKernels().copy_pages)

    def write(self, number: int, tokens: Tokens) -> None:
        """As a step does: the page is made the device's own, then written to behind what it holds."""
        before = self.held.get(number, ())
        self.pages.own([row_of(number, len(before), len(tokens))])
        self.count()
        at = self.pages.address(number) + len(before) * TOKEN
        memory_at(at, len(tokens) * TOKEN)[:] = bytes_of(tokens)
        self.held[number] = before + tokens

    def count(self) -> None:
        """Contents now: what a device page and the pool share, and only that, counts once."""
        if isinstance(self.pages, FramedPages):
            slots = [*self.pool._slots._frames.values()]  # type: ignore[attr-defined]
            self.most = max(self.most, len({*slots, *self.pages.frames()}))

    @rule(number=numbers, first=st.integers(0, 3), count=st.integers(1, PAGE_TOKENS))
    def begin(self, number: int, first: int, count: int) -> None:
        """The page is given to another sequence, which writes its first tokens."""
        self.held.pop(number, None)
        self.write(number, tuple(range(first * 16, first * 16 + count)))

    @rule(number=numbers, token=st.integers(64, 80), count=st.integers(1, 4))
    def go_on(self, number: int, token: int, count: int) -> None:
        """A step writes behind what the page holds, saved or not."""
        before = self.held.get(number, ())
        if 0 < len(before) <= PAGE_TOKENS - count:
            self.write(number, (token,) * count)

    @rule(number=numbers)
    def roll_back(self, number: int) -> None:
        """Drafts that were written are not accepted."""
        before = self.held.get(number, ())
        if len(before) > 1:
            self.held[number] = before[:-1]

    @rule(number=numbers, now=st.booleans(), gives_up=st.booleans())
    def save(self, number: int, now: bool, gives_up: bool) -> None:
        tokens = self.held.get(number)
        if tokens is None:
            return
        self.now += 1.0
        ref, address = page_of(tokens), self.pages.address(number)
        if now:
            self.saver.save_now(ref, address)
        else:
            self.saver.run(SaveJob(ref, address, number))
        self.known[ref.id] = tokens
        if gives_up:
            del self.held[number]

    @rule(number=numbers)
    def promise(self, number: int) -> None:
        """Room is reserved for a page; it comes at once, or never."""
        tokens = self.held.get(number)
        if tokens is None:
            return
        ref = page_of(tokens)
        if self.saver.promise([ref]):
            if number % 2:
                self.known[ref.id] = tokens
                self.saver.fulfil(ref.id, self.pages.address(number))
            self.saver.close()

    @rule(data=st.data(), at=st.lists(numbers, min_size=1, max_size=4, unique=True), cancelled=st.booleans())
    def load(self, data: st.DataObject, at: list[int], cancelled: bool) -> None:
        if not self.known:
            return
        wanted = st.sampled_from(sorted(self.known))
        self.bring([page_of(self.known[data.draw(wanted)]) for _ in at], at, cancelled=cancelled)

    def bring(self, refs: list[PageRef], at: list[int], *, cancelled: bool = False) -> Loaded:
        """A load, after which the device pages hold as many of these pages as it says."""
        for number in at:
            self.held.pop(number, None)
        job = LoadJob(1, refs, self.pages.targets(at), take_leases(self.pool, refs), 0.0)
        self.count()
        if cancelled:
            job.cancelled.set()
        done = self.loader.run(job)
        self.pages.landed(at, done.addresses)
        for number, ref in zip(at[: done.pages], refs, strict=False):
            self.held[number] = self.known[ref.id]
        return done

    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        if self.known:
            self.pool.drop(data.draw(st.sampled_from(sorted(self.known))))

    @rule(data=st.data())
    def spill(self, data: st.DataObject) -> None:
        """A page goes to disk, checked: from there it comes into a frame of the device's own."""
        there = sorted(page for page, _ in self.pool.pages())
        if there:
            page = data.draw(st.sampled_from(there))
            lease = self.pool.lease(page, "t")
            assert lease is not None
            with lease:
                self.store.store([StoredPage(lease.ref, lease.checksum(), lease.view())], 0.0)

    @rule(data=st.data(), byte=st.integers(0, SIZE - 1))
    def damage(self, data: st.DataObject, byte: int) -> None:
        """A fault in memory, of a page that only the pool has: it is found, and no device page holds it afterwards."""
        leased = {lease.ref.id for _, lease in self.leases}
        alone = [page for page, _ in self.pool.pages() if page not in leased and not self.on_device(page)]
        if not alone:
            return
        page = data.draw(st.sampled_from(sorted(alone)))
        memory_at(self.below(page), SIZE)[byte] ^= 1
        before, on_disk = self.metrics.snapshot().corrupt_host, page in self.store.bytes
        done = self.bring([page_of(self.known[page])], [0])
        assert (done.host, done.disk) == (0, int(on_disk))
        assert self.metrics.snapshot().corrupt_host == before + 1

    def below(self, page: bytes) -> int:
        """Where the pool has it."""
        lease = self.pool.lease(page, "t")
        assert lease is not None
        with lease:
            return lease.source()[0]

    def on_device(self, page: bytes) -> bool:
        """Whether a device page refers to where the pool has it, still or without need any more."""
        common = self.pages.common
        return common is not None and common.shared(common.frame(self.below(page)))

    @rule(source=numbers, destination=numbers)
    def copy(self, source: int, destination: int) -> None:
        if source != destination and source in self.held:
            self.pages.copy([(source, destination)])
            self.count()
            self.held[destination] = self.held[source]

    @rule(data=st.data())
    def take_lease(self, data: st.DataObject) -> None:
        if self.known and len(self.leases) < 2:
            page = data.draw(st.sampled_from(sorted(self.known)))
            lease = self.pool.lease(page, "t")
            if lease is not None:
                self.leases.append((self.known[page], lease))

    @rule()
    def end_leases(self) -> None:
        for tokens, lease in self.leases:
            assert bytes(lease.view())[: len(tokens) * TOKEN] == bytes_of(tokens)
            lease.release()
        self.leases.clear()

    @invariant()
    def every_page_holds_its_own_bytes(self) -> None:
        for number, tokens in self.held.items():
            there = bytes(memory_at(self.pages.address(number), len(tokens) * TOKEN))
            assert there == bytes_of(tokens), f"device page {number}"
            if self.pages.places is not None:
                place = self.pages.places.at[number]
                assert int(self.pages.places.table[number]) == place
                assert self.pages.address(number) == self.pages.store[place].data_ptr()
        for page, tenant in self.pool.pages():
            lease = self.pool.lease(page, tenant)
            assert lease is not None
            with lease:
                tokens = self.known[page]
                assert bytes(lease.view())[: len(tokens) * TOKEN] == bytes_of(tokens), "in the pool"

    @invariant()
    def the_books_are_right(self) -> None:
        assert self.pool.check(self.pages.frames()) == []
        self.count()
        if self.pages.common is not None:
            touched = len(self.pages.common._frames.holders)
            assert touched <= self.most + 1, "one more while a page moves"

    def teardown(self) -> None:
        self.end_leases()
        self.loader.close()
        self.pool.close()
        if self.pages.common is not None:
            assert self.pages.common.problems(self.pages.frames() or []) == []


class CopyingMachine(PagesMachine):
    """The same where the pool has memory of its own, as below a device that has."""

    def make(self) -> DevicePages:
        return DevicePages(LAYOUT, PAGES, TorchKernels().copy_pages)


TestPagesMachine = PagesMachine.TestCase
TestPagesMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
TestCopyingMachine = CopyingMachine.TestCase
TestCopyingMachine.settings = settings(max_examples=15, stateful_step_count=30, deadline=None, derandomize=True)


BIG = KvLayout(layers=1, kv_heads=8, head_dim=2048, dtype=torch.bfloat16)
MIB = 1 << 20


def resident(address: int) -> int:
    """Bytes of physical memory behind the mapping that holds this address."""
    text = Path("/proc/self/smaps").read_text()
    for start, end, rest in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) (.*?)^VmFlags", text, re.MULTILINE | re.DOTALL):
        if int(start, 16) <= address < int(end, 16):
            return int(re.findall(r"^Rss: +(\d+) kB", rest, re.MULTILINE)[0]) << 10
    raise AssertionError("the memory is not mapped")


def pool_resident(pool: HostPool) -> int:
    if pool.common is None:
        return resident(pool._slots._memory.address)  # type: ignore[attr-defined]
    return 0


@pytest.mark.parametrize("shared", [True, False])
def test_what_both_have_takes_memory_once(shared: bool) -> None:
    """40 pages of 1 MiB are written, saved, given up, brought back, and written anew while the pool keeps the old."""
    kernels, count, slots = TorchKernels(), 40, 60
    assert BIG.page_bytes == MIB
    pages = (
        FramedPages(BIG, count, slots, kernels.copy_pages) if shared else DevicePages(BIG, count, kernels.copy_pages)
    )
    pool = HostPool(HostMemory(data_start(slots) + slots * MIB), MIB, Metrics(), common=pages.common)
    saver = Saver(pool, Metrics(), lambda: 0.0)
    loader = Loader(pool, None, Metrics(), lambda: 0.0, name="test", threads=2, piece_bytes=8 * MIB)
    every = list(range(count))
    refs = [page_of((i,)) for i in every]

    def write(i: int, value: int) -> None:
        pages.own([row_of(i, 0, PAGE_TOKENS)])
        memory_at(pages.address(i), MIB)[:] = bytes([value]) * MIB

    def held() -> float:
        return (resident(pages.store.data_ptr()) + pool_resident(pool)) / MIB

    for i in every:
        write(i, i)
        saver.save_now(refs[i], pages.address(i))
    once = 1 if shared else 2
    assert count * once <= held() <= count * once + 6, "a huge page or two more"
    done = loader.run(LoadJob(1, refs, pages.targets(every), take_leases(pool, refs), 0.0))
    pages.landed(every, done.addresses)
    assert done.pages == count
    assert all(memory_at(pages.address(i), MIB) == bytes([i]) * MIB for i in every)
    assert held() <= count * once + 6
    for i in every[:20]:
        write(i, 100 + i)
    assert held() <= count * once + (20 if shared else 0) + 6, "now both are wanted"
    for i in every:
        lease = pool.lease(refs[i].id, "t")
        assert lease is not None
        with lease:
            assert lease.view() == bytes([i]) * MIB
    loader.close()
    pool.close()


def test_a_row_over_several_pages_keeps_what_it_goes_on_behind() -> None:
    pages = FramedPages(LAYOUT, PAGES, SLOTS, TorchKernels().copy_pages)
    pool = HostPool(pool_memory(SLOTS), SIZE, Metrics(), common=pages.common)
    saver = Saver(pool, Metrics(), lambda: 0.0)
    for number in (1, 2):
        (at,) = pages.targets([number])
        memory_at(at, SIZE)[:] = bytes([number]) * SIZE
        saver.save_now(page_of((number,)), at)
    before = [pages.address(number) for number in (1, 2)]
    row = row_of(0, 5, 2 * PAGE_TOKENS)
    row.sequence.pages.numbers[3:] = [1, 2, 4]
    pages.own([row])
    after = [pages.address(number) for number in (1, 2, 4)]
    assert not {*before} & {*after}
    assert bytes(memory_at(after[0], SIZE)) == bytes([1]) * SIZE
    pages.own([row])
    assert [pages.address(number) for number in (1, 2, 4)] == after, "they are its own now"
    assert pool.check(pages.frames()) == []
    pool.close()


def test_what_is_not_there_is_refused() -> None:
    pages = FramedPages(LAYOUT, PAGES, SLOTS, TorchKernels().copy_pages)
    with pytest.raises(ValueError, match="page 3 holds nothing"):
        pages.address(3)
    for address in (pages.store.data_ptr() - SIZE, pages.store.data_ptr() + 1, pages.store.data_ptr() + 100 * SIZE):
        with pytest.raises(TierError, match="common memory"):
            pages.common.frame(address)
    pool = HostPool(pool_memory(SLOTS), SIZE, Metrics(), common=pages.common)
    with pytest.raises(TierError, match="own memory"):
        pool.path  # noqa: B018
    pool.close()
