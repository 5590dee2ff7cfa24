"""Prompts of a load test: lengths, sharing, seeds, and files that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.bench.workload import WORDS, Shape, file_samples, random_samples
from forebay.core.errors import ConfigError


def test_lengths_are_exact_without_a_range() -> None:
    samples = random_samples(3, Shape(input_tokens=20, output_tokens=7), WORDS, 0)
    assert [len(sample.prompt.split()) for sample in samples] == [20, 20, 20]
    assert {(sample.prompt_tokens, sample.max_tokens) for sample in samples} == {(20, 7)}
    assert len({sample.prompt for sample in samples}) == 3


def test_lengths_stay_in_the_range_and_vary() -> None:
    samples = random_samples(200, Shape(input_tokens=100, output_tokens=10, range_ratio=0.5), WORDS, 0)
    lengths = {sample.prompt_tokens for sample in samples}
    assert min(lengths) >= 50
    assert max(lengths) <= 150
    assert len(lengths) > 30
    assert {sample.max_tokens for sample in samples} <= set(range(5, 16))


def test_the_seed_alone_decides_the_prompts() -> None:
    shape = Shape(input_tokens=9, output_tokens=1, range_ratio=0.3)
    assert random_samples(5, shape, WORDS, 1) == random_samples(5, shape, WORDS, 1)
    assert random_samples(5, shape, WORDS, 1) != random_samples(5, shape, WORDS, 2)


def test_prefixes_take_turns_and_suffixes_differ() -> None:
    shape = Shape(input_tokens=8, output_tokens=1, prefix_tokens=32, prefixes=2)
    words = [sample.prompt.split() for sample in random_samples(4, shape, WORDS, 0)]
    assert words[0][:32] == words[2][:32]
    assert words[1][:32] == words[3][:32]
    assert words[0][:32] != words[1][:32]
    assert words[0][32:] != words[2][32:]


@pytest.mark.parametrize(
    "shape", [Shape(0, 1), Shape(1, 0), Shape(1, 1, 1.0), Shape(1, 1, -0.1), Shape(1, 1, prefixes=0)]
)
def test_senseless_shapes_are_refused(shape: Shape) -> None:
    with pytest.raises(ValueError, match="at least"):
        random_samples(1, shape, WORDS, 0)


def test_a_file_gives_its_prompts_in_order_and_again_when_it_is_short(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "one two", "max_tokens": 3}\n\n{"prompt": "grüße"}\n', encoding="utf-8")
    samples = file_samples(path, 3, 16)
    assert [(sample.prompt, sample.max_tokens) for sample in samples] == [("one two", 3), ("grüße", 16), ("one two", 3)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no prompts"),
        ("{", "Line 1 .* is not JSON"),
        ('{"prompt": "a"}\n{"prompt": 3}', 'Line 2 .* no text in "prompt"'),
        ("[]", 'no text in "prompt"'),
        ('{"prompt": "a", "max_tokens": true}', "max_tokens"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        file_samples(path, 1, 16)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        file_samples(tmp_path / "none.jsonl", 1, 16)
