"""A model's vocabulary as llguidance wants it: the bytes of every token, and which are control."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from llguidance import LLTokenizer, TokenizerWrapper

from forebay.core.errors import UnsupportedModelError
from forebay.core.gguf import read_gguf
from forebay.recipe.gguf_tokenizer import gguf_parts
from forebay.recipe.hf_tokenizer import hf_parts
from forebay.recipe.vocabulary import Vocabulary


class _Tokens:
    """The tokenizer protocol of `TokenizerWrapper`."""

    def __init__(self, vocabulary: Vocabulary, stop_ids: Sequence[int], size: int) -> None:
        self._vocabulary = vocabulary
        self.eos_token_id = stop_ids[0]
        self.bos_token_id = vocabulary.bos_id
        self.tokens = [vocabulary.token_bytes(token) for token in range(size)]
        self.special_token_ids = sorted(vocabulary.control_ids)

    def __call__(self, text: str | bytes) -> list[int]:
        whole = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return self._vocabulary.plain_ids(whole, continued=True)


def grammar_tokens(vocabulary: Vocabulary, stop_ids: Sequence[int], size: int | None = None) -> LLTokenizer:
    """The vocabulary for llguidance; takes about half a second for 50,000 tokens.

    Args:
        vocabulary: the model's.
        stop_ids: the model's own ends of an answer; a grammar allows them where the answer may end, and only there.
        size: the width of the model's logits where it has more ids than the vocabulary.

    Raises:
        UnsupportedModelError: there is no stop id, so a finished answer could not end.
    """
    if not stop_ids:
        raise UnsupportedModelError("The model names no token that ends an answer, so structured output can't end.")
    tokens = _Tokens(vocabulary, stop_ids, max(size or 0, vocabulary.size))
    # Without slices llguidance would look at every token of long runs of ordinary text.
    return LLTokenizer(TokenizerWrapper(tokens), eos_token=list(stop_ids), slices=LLTokenizer.json_slices())


def load_grammar_tokens(path: Path, kind: Literal["gguf", "hf"], size: int) -> LLTokenizer:
    """The same from a model's files, for the worker: it reads the tokenizer and nothing else.

    Raises UnsupportedModelError that names what is missing.
    """
    parts = hf_parts(path) if kind == "hf" else gguf_parts(read_gguf(path).metadata)
    return grammar_tokens(Vocabulary(parts), parts.stop_ids, size)
