"""A guard against slow growth: what a decode step does besides its kernels, counted and not timed.

The counts are the same on every machine. Raise a bound only with a reason; a tensor made for each row, or a walk over
everything that waits, shows here at once.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.models import tiny
from torch.utils._python_dispatch import TorchDispatchMode

from forebay.core.request import GenerateRequest, SamplingParams
from forebay.engine import WorkerOptions
from forebay.engine.build import build_engine
from forebay.engine.engine import Engine

STEPS = 16
TORCH_OPERATIONS = 20
"""In a step, however many rows it has."""
CALLS = 140
"""Python functions called in a step of one row."""
CALLS_A_ROW = 40
"""By each further row."""
CALLS_OF_WAITING = 120
"""When requests wait, however many."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tiny.save(tiny.build(tiny.llama()), path)
    return path


@pytest.fixture
def decoding(folder: Path) -> Iterator[Callable[..., Engine]]:
    """Makes an engine whose running sequences all decode."""
    engines: list[Engine] = []

    def start(rows: int, waiting: int = 0) -> Engine:
        options = WorkerOptions(model=str(folder), kv_memory=32 << 20, max_running=rows)
        engine = build_engine(options, lambda _stage, _share: None)
        engines.append(engine)
        for number in range(rows + waiting):
            ids = [(number * 7 + place) % 100 for place in range(20)]
            sampling = SamplingParams(max_tokens=100, temperature=0.0)
            engine.submit(GenerateRequest(id=str(number), prompt_ids=ids, sampling=sampling))
        for _ in range(8):
            engine.step()
        return engine

    yield start
    for engine in engines:
        engine.close()


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Calls of Python functions, by name."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts torch's operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def calls_a_step(engine: Engine) -> tuple[float, Counter[str]]:
    with counted_calls() as calls:
        for _ in range(STEPS):
            assert engine.step()
    return calls.total() / STEPS, calls


@pytest.mark.parametrize("rows", [1, 32])
def test_torch_operations_of_a_step(decoding: Callable[..., Engine], rows: int) -> None:
    engine = decoding(rows)
    if engine.info.kernels == "torch":
        pytest.skip("the torch kernels, which run where no compiler is, are made of torch's operations")
    with Operations() as operations:
        assert len(engine.step()) == rows
    assert operations.counts.total() <= TORCH_OPERATIONS, operations.counts


def test_calls_of_a_step(decoding: Callable[..., Engine]) -> None:
    one, counts = calls_a_step(decoding(1))
    many, counts_of_many = calls_a_step(decoding(32))
    assert one <= CALLS, counts.most_common(20)
    assert (many - one) / 31 <= CALLS_A_ROW, counts_of_many.most_common(20)


def test_requests_that_wait_cost_the_same_however_many(decoding: Callable[..., Engine]) -> None:
    alone, _ = calls_a_step(decoding(8))
    few, counts = calls_a_step(decoding(8, waiting=50))
    many, counts_of_many = calls_a_step(decoding(8, waiting=400))
    assert few - alone <= CALLS_OF_WAITING, counts.most_common(20)
    assert many - few <= 5, (counts_of_many - counts).most_common(20)
