"""The tokenizer of a GGUF file, rebuilt from its `tokenizer.*` metadata for the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tokenizers import Tokenizer, models

from forebay.core.errors import UnsupportedModelError
from forebay.recipe.pretokenizers import word_rule
from forebay.recipe.vocabulary import Prefix, Scheme, TokenizerParts

_NORMAL: Final = 1
_CONTROL: Final = 3


def gguf_parts(metadata: Mapping[str, Any]) -> TokenizerParts:
    """Read the tokenizer from a GGUF file's metadata.

    Raises UnsupportedModelError that names the kind of tokenizer or the key that is missing.
    """
    kind = _need(metadata, "tokenizer.ggml.model")
    if kind != "gpt2":
        raise UnsupportedModelError(f"The tokenizer {kind!r} of this GGUF file is not supported; supported is gpt2.")
    tokens: list[str] = _need(metadata, "tokenizer.ggml.tokens")
    rule = word_rule(metadata.get("tokenizer.ggml.pre", "default"))
    merges = [tuple(merge.split(" ", 1)) for merge in _need(metadata, "tokenizer.ggml.merges")]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=rule.ignore_merges))
    tokenizer.pre_tokenizer = rule.build()
    types = metadata.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens))
    eos = metadata.get("tokenizer.ggml.eos_token_id")
    return TokenizerParts(
        plain=tokenizer,
        continued=tokenizer,
        scheme=Scheme.BYTE_LEVEL,
        prefix=Prefix.NONE,
        size=len(tokens),
        control={token: i for i, (token, type_) in enumerate(zip(tokens, types, strict=True)) if type_ == _CONTROL},
        bos_id=metadata.get("tokenizer.ggml.bos_token_id"),
        adds_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", rule.adds_bos)),
        stop_ids=() if eos is None else (eos,),
        chat_template=metadata.get("tokenizer.chat_template"),
    )


def _need(metadata: Mapping[str, Any], key: str) -> Any:
    if key not in metadata:
        raise UnsupportedModelError(f"The GGUF file has no {key}, so its text can't be encoded.")
    return metadata[key]
