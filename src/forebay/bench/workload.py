"""The prompts of a load test: random text of given lengths, shared prefixes, or a file. Pure but for reading the file.

Random prompts are made of common English words that most vocabularies hold as one token each, so that the number of
words is close to the number of tokens; a caller that can ask the server's tokenizer passes only the words that really
are one token (see `client.one_token_words`). What is reported afterwards is what the server counted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from forebay.core.errors import ConfigError

_COMMON = """
    the of and to in is that for it as was with be by on not he this are or his from at which but have an had they you
    were their one all we can her has there been if more when will would who so no said what up its about into than them
    out some could time these two may then do first any my now such like our over man me even most made after also did
    many before must through back years where much your way well down should because each just those people how too
    little state good very make world still own see men work long get here between both life being under never day same
    another know while last might us great old year off come since against go came right used take three
"""
WORDS = tuple(_COMMON.split())


@dataclass(frozen=True, slots=True)
class Sample:
    """One request of a run."""

    prompt: str
    prompt_tokens: int
    """As planned; the server's own count replaces it when it sends one."""
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Shape:
    """The lengths that random prompts and answers have, in tokens."""

    input_tokens: int
    output_tokens: int
    range_ratio: float = 0.0
    """Each length is uniform in [length * (1 - ratio), length * (1 + ratio)]; 0 is exact, below 1."""
    prefix_tokens: int = 0
    """Tokens that come before the input and are shared among prompts of the same prefix."""
    prefixes: int = 1
    """How many different prefixes take turns."""


def random_samples(count: int, shape: Shape, words: Sequence[str], seed: int) -> list[Sample]:
    """`count` prompts of random words, each after one of `shape.prefixes` shared prefixes when those have a length.

    The same arguments give the same prompts. Raises ValueError when a length or ratio makes no sense.
    """
    if not 0 <= shape.range_ratio < 1:
        raise ValueError(f"The range ratio is {shape.range_ratio}; it must be at least 0 and below 1.")
    if shape.input_tokens < 1 or shape.output_tokens < 1 or shape.prefix_tokens < 0 or shape.prefixes < 1:
        raise ValueError("Input and output lengths and the number of prefixes must be at least 1.")
    rng = np.random.default_rng(seed)
    prefixes = [_text(rng, words, shape.prefix_tokens) for _ in range(shape.prefixes)]
    samples = []
    for index in range(count):
        inputs = _length(rng, shape.input_tokens, shape.range_ratio)
        outputs = _length(rng, shape.output_tokens, shape.range_ratio)
        prompt = prefixes[index % shape.prefixes] + _text(rng, words, inputs)
        samples.append(Sample(prompt, shape.prefix_tokens + inputs, outputs))
    return samples


def _length(rng: np.random.Generator, tokens: int, ratio: float) -> int:
    low, high = int(tokens * (1 - ratio)), int(tokens * (1 + ratio))
    return max(1, int(rng.integers(low, high, endpoint=True)))


def _text(rng: np.random.Generator, words: Sequence[str], tokens: int) -> str:
    """`tokens` words, a space before each: a word at the start of a text is often another token than within one."""
    return "".join(f" {words[index]}" for index in rng.integers(0, len(words), tokens))


def file_samples(path: Path, count: int, default_max_tokens: int) -> list[Sample]:
    """The first `count` prompts of a JSONL file of {"prompt": text, "max_tokens"?: number}, repeated when it has fewer.

    Raises ConfigError naming the line that does not fit, or the file that can't be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The data set {path} can't be read: {error}.") from error
    samples = [
        _line_sample(path, number, line, default_max_tokens) for number, line in enumerate(lines, 1) if line.strip()
    ]
    if not samples:
        raise ConfigError(f"The data set {path} holds no prompts.")
    return [samples[index % len(samples)] for index in range(count)]


def _line_sample(path: Path, number: int, line: str, default_max_tokens: int) -> Sample:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"Line {number} of {path} is not JSON: {error}.") from error
    prompt = record.get("prompt") if isinstance(record, dict) else None
    max_tokens = record.get("max_tokens", default_max_tokens) if isinstance(record, dict) else None
    if not isinstance(prompt, str) or not prompt:
        raise ConfigError(f'Line {number} of {path} has no text in "prompt".')
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
        raise ConfigError(f'Line {number} of {path}: "max_tokens" must be a whole number of at least 1.')
    return Sample(prompt, len(prompt.split()), max_tokens)
