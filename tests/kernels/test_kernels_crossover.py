"""The crossover between widening in registers and in the cache: chosen by time, kept, and without effect on results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from forebay.kernels.crossover import MatrixKind, Timer, crossover, known_crossovers, measure
from forebay.kernels.native import NativeKernels
from forebay.kernels.quantised import quantise

KIND = MatrixKind("INT8_FP16", 512, 64)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOREBAY_CACHE", str(tmp_path))
    return tmp_path


@given(st.integers(3, 13))
def test_the_faster_way_is_chosen(cut: int) -> None:
    assert measure(lambda rows, few: 1.0 if (rows <= few) == (rows <= cut) else 2.0) == cut


@given(st.integers(4, 13), st.integers(5, 12))
def test_one_bad_measurement_moves_it_little(wrong: int, cut: int) -> None:
    def times(rows: int) -> tuple[int, float, float]:
        few_wins = (rows <= cut) != (rows == wrong)
        return (rows, 1.0, 1.3) if few_wins else (rows, 1.3, 1.0)

    assert abs(crossover(times(rows) for rows in range(4, 14)) - cut) <= 2


def test_measured_once_and_kept() -> None:
    calls: list[int] = []

    def seconds(rows: int, few: int) -> float:
        calls.append(rows)
        return 1.0 if (rows <= few) == (rows <= 9) else 2.0

    first = known_crossovers({KIND: seconds}, "native", 2)
    measured = len(calls)
    assert known_crossovers({KIND: seconds}, "native", 2) == first == {KIND: 9}
    assert measured == len(calls) > 0


def test_another_kind_is_measured_beside_what_is_kept() -> None:
    other = MatrixKind("INT4_FP16", 512, 64)
    known_crossovers({KIND: lambda rows, few: 1.0 if (rows <= few) == (rows <= 9) else 2.0}, "native", 2)

    def never(rows: int, few: int) -> float:
        raise AssertionError(f"{rows} rows timed again, few {few}")

    both = {KIND: never, other: lambda rows, few: 1.0 if (rows <= few) == (rows <= 4) else 2.0}
    assert known_crossovers(both, "native", 2) == {KIND: 9, other: 4}
    assert known_crossovers({KIND: never, other: never}, "native", 2) == {KIND: 9, other: 4}


@pytest.mark.parametrize("text", ["", "[]", '{"INT8_FP16 512x64": "9"}', '{"INT8_FP16 512x64": 1000}'])
def test_a_file_that_says_nothing_is_measured_anew(text: str, folder: Path) -> None:
    known_crossovers({KIND: lambda rows, few: 1.0 if (rows <= few) == (rows <= 9) else 2.0}, "native", 2)
    next((folder / "crossover").glob("*.json")).write_text(text)
    found = known_crossovers({KIND: lambda rows, few: 1.0 if (rows <= few) == (rows <= 5) else 2.0}, "native", 2)
    assert found == {KIND: 5}


@pytest.mark.parametrize("bits", [4, 8])
def test_every_crossover_gives_the_same_bits(bits: int, native: NativeKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    weight = native.pack_quantised(quantise(torch.randn(200, 96), bits), torch.float32)
    x = torch.randn(17, 96)

    def products(few: int) -> list[Tensor]:
        monkeypatch.setattr("forebay.kernels.native.known_crossovers", lambda kinds, *_: dict.fromkeys(kinds, few))
        native.settle([weight])
        return [native.linear(x[:rows].contiguous(), weight) for rows in range(1, 18)]

    expected = products(0)
    for few in (3, 6, 16):
        assert all(torch.equal(one, other) for one, other in zip(expected, products(few), strict=True))


def test_matrices_are_measured_with_their_own_products(native: NativeKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[MatrixKind] = []

    def known(timers: Mapping[MatrixKind, Timer], name: str, threads: int) -> dict[MatrixKind, int]:
        asked.extend(timers)
        assert (name, threads) == (native.name, 2)
        assert all(timer(rows, few) > 0 for timer in timers.values() for rows, few in ((4, 4), (4, 0), (13, 13)))
        return dict.fromkeys(timers, 6)

    monkeypatch.setattr("forebay.kernels.native.known_crossovers", known)
    plain = native.pack(torch.randn(4, 4), torch.float32)
    wide, same, narrow = (
        native.pack_quantised(quantise(torch.randn(n, 32), 8), torch.float32) for n in (5000, 5000, 48)
    )
    native.settle([wide, plain, same, narrow])
    assert asked == [MatrixKind("INT8_FP16", 5000, 32), MatrixKind("INT8_FP16", 48, 32)]


def test_a_busy_machine_is_not_believed() -> None:
    calls = 0

    def seconds(rows: int, few: int) -> float:
        nonlocal calls
        calls += 1
        cut = 4 if calls <= 80 else 12
        return 1.0 if (rows <= few) == (rows <= cut) else 2.0

    assert known_crossovers({KIND: seconds}, "native", 2) == {KIND: 6}
    quiet = known_crossovers({KIND: lambda rows, few: 1.0 if (rows <= few) == (rows <= 9) else 2.0}, "native", 2)
    assert quiet == {KIND: 9}
