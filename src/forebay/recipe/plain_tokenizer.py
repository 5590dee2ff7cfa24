"""Builds tokenizers that know no control token, and reads off a tokenizer how it treats bytes and leading spaces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tokenizers import AddedToken, Tokenizer, models

from forebay.core.errors import UnsupportedModelError
from forebay.recipe.vocabulary import Prefix, Scheme


def plain_clone(tokenizer: Tokenizer, content: Iterable[tuple[int, AddedToken]]) -> tuple[Tokenizer, dict[int, str]]:
    """A tokenizer of the same model, words and normalisation, with no added tokens but `content`.

    Returns it and the content tokens that it has. One that would get another id than its own is left out, so its text
    is encoded like any other. There is no truncation and no padding.
    """
    plain = _dressed(tokenizer, tokenizer)
    kept = [(token_id, token) for token_id, token in content if tokenizer.model.token_to_id(token.content) == token_id]
    plain.add_tokens([token for _, token in kept])
    return plain, {token_id: token.content for token_id, token in kept}


def without_prefix(plain: Tokenizer) -> Tokenizer:
    """The same plain tokenizer, putting no space before the text."""
    shell = json.loads(_shell(plain).to_str())
    for part in ("normalizer", "pre_tokenizer"):
        shell[part] = _unprefixed(shell[part])
    clone = _dressed(plain, Tokenizer.from_str(json.dumps(shell)))
    clone.add_tokens(list(plain.get_added_tokens_decoder().values()))
    return clone


def prefix_of(tokenizer: Tokenizer) -> Prefix:
    """Where a tokenizer puts a space before text."""
    shell = json.loads(_shell(tokenizer).to_str())
    found = Prefix.NONE
    for part in _parts(shell):
        if part["type"] == "Prepend" or (part["type"] == "ByteLevel" and part["add_prefix_space"]):
            return Prefix.RUN
        if part["type"] == "Metaspace" and part["prepend_scheme"] != "never":
            found = Prefix.RUN if part["prepend_scheme"] == "always" else Prefix.START
    return found


def scheme_of(tokenizer: Tokenizer) -> Scheme:
    """How a tokenizer spells bytes. Raises UnsupportedModelError for one that can't write every text."""
    kind = type(tokenizer.model).__name__
    if kind != "BPE":
        raise UnsupportedModelError(f"The tokenizer's model is {kind}; only BPE is supported.")
    shell = json.loads(_shell(tokenizer).to_str())
    if any(part["type"] == "ByteLevel" for part in _parts(shell)):
        return Scheme.BYTE_LEVEL
    if tokenizer.model.byte_fallback:
        return Scheme.SENTENCEPIECE
    raise UnsupportedModelError(
        "The tokenizer is neither byte-level nor has byte fallback, so it can't write every text."
    )


def _dressed(bare: Tokenizer, like: Tokenizer) -> Tokenizer:
    """`bare`'s model (shared, not copied) with the normalisation and words of `like`."""
    clone = Tokenizer(bare.model)
    if like.normalizer is not None:
        clone.normalizer = like.normalizer
    if like.pre_tokenizer is not None:
        clone.pre_tokenizer = like.pre_tokenizer
    return clone


def _shell(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer without its vocabulary, so that writing it as JSON is cheap."""
    shell = Tokenizer(models.BPE())
    if tokenizer.normalizer is not None:
        shell.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        shell.pre_tokenizer = tokenizer.pre_tokenizer
    return shell


def _parts(shell: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The normalizers and pre-tokenizers, those within sequences too."""
    waiting = [part for part in (shell["normalizer"], shell["pre_tokenizer"]) if part is not None]
    while waiting:
        part = waiting.pop()
        inner = part.get("normalizers", part.get("pretokenizers"))
        if inner is None:
            yield part
        else:
            waiting.extend(inner)


def _unprefixed(part: dict[str, Any] | None) -> dict[str, Any] | None:
    if part is None or part["type"] == "Prepend":
        return None
    if part["type"] == "Metaspace":
        return part | {"prepend_scheme": "never"}
    if part["type"] == "ByteLevel":
        return part | {"add_prefix_space": False}
    for inner in ("normalizers", "pretokenizers"):
        if inner in part:
            kept = [_unprefixed(each) for each in part[inner]]
            return part | {inner: [each for each in kept if each is not None]}
    return part
