"""The tokenizer of a GGUF file, rebuilt from its `tokenizer.*` metadata for the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from tokenizers import AddedToken as LibraryToken
from tokenizers import Tokenizer, models, normalizers

from forebay.core.errors import UnsupportedModelError
from forebay.recipe.classify import AddedToken, control_tokens
from forebay.recipe.plain_tokenizer import plain_clone, prefix_of, scheme_of, without_prefix
from forebay.recipe.pretokenizers import word_rule
from forebay.recipe.vocabulary import Prefix, TokenizerParts

_ENDINGS: Final = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "</s>",
)
"""GGUF names one end token, but a chat model has two or three: the end of a turn and that of a document."""


class _Kind(IntEnum):
    """GGUF's token types."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def gguf_parts(metadata: Mapping[str, Any]) -> TokenizerParts:
    """Read the tokenizer from a GGUF file's metadata.

    Raises UnsupportedModelError that names the kind of tokenizer or the key that is missing.
    """
    tokens: list[str] = list(_need(metadata, "tokens"))
    kinds: Sequence[int] = metadata.get("tokenizer.ggml.token_type", [_Kind.NORMAL] * len(tokens))
    if len(kinds) != len(tokens):
        raise UnsupportedModelError(f"The GGUF file has {len(tokens)} tokens but {len(kinds)} token types.")
    tokenizer, adds_bos = _tokenizer(metadata, tokens)
    added = [
        AddedToken(token_id, tokens[token_id], kind != _Kind.USER_DEFINED)
        for token_id, kind in enumerate(kinds)
        if kind not in (_Kind.NORMAL, _Kind.BYTE)
    ]
    ids = _named_ids(metadata, len(tokens))
    template = metadata.get("tokenizer.chat_template") or ""
    control = control_tokens(added, tokenizer.model, template, set(ids.values()))
    content = [(token.id, LibraryToken(token.text, normalized=False)) for token in added if token.text not in control]
    plain, kept = plain_clone(tokenizer, content)
    prefix = prefix_of(plain)
    return TokenizerParts(
        plain=plain,
        continued=plain if prefix is Prefix.NONE else without_prefix(plain),
        scheme=scheme_of(plain),
        prefix=prefix,
        size=len(tokens),
        control=control,
        content=kept,
        bos_id=ids.get("bos"),
        adds_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", adds_bos)),
        stop_ids=_stop_ids(ids, control),
        chat_template=template or None,
        named={f"{name}_token": tokens[token_id] for name, token_id in ids.items()},
        swallows_behind=_swallowing(metadata, control),
    )


def _tokenizer(metadata: Mapping[str, Any], tokens: list[str]) -> tuple[Tokenizer, bool]:
    """The tokenizer without added tokens, and whether its kind puts BOS first by default."""
    kind = _need(metadata, "model")
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    if kind == "gpt2":
        return _byte_level(metadata, vocab)
    if kind == "llama":
        return _sentencepiece(metadata, tokens, vocab), True
    raise UnsupportedModelError(f"The GGUF file's tokenizer is {kind!r}; supported are 'gpt2' and 'llama'.")


def _byte_level(metadata: Mapping[str, Any], vocab: dict[str, int]) -> tuple[Tokenizer, bool]:
    rule = word_rule(metadata.get("tokenizer.ggml.pre", "default"))
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in _need(metadata, "merges"))]
    tokenizer = Tokenizer(_bpe(vocab, merges, ignore_merges=rule.ignore_merges))
    tokenizer.pre_tokenizer = rule.build(add_prefix_space=bool(metadata.get("tokenizer.ggml.add_space_prefix", False)))
    return tokenizer, rule.adds_bos


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str], vocab: dict[str, int]) -> Tokenizer:
    if metadata.get("tokenizer.ggml.precompiled_charsmap"):
        raise UnsupportedModelError(
            "The GGUF file's tokenizer normalises text by a character map, which is not supported."
        )
    if metadata.get("tokenizer.ggml.remove_extra_whitespaces", False):
        raise UnsupportedModelError("The GGUF file's tokenizer removes repeated spaces, which is not supported.")
    if any(f"<0x{byte:02X}>" not in vocab for byte in range(256)):
        raise UnsupportedModelError("The GGUF file's tokenizer lacks byte tokens, so it can't write every text.")
    merges = merges_from_scores(tokens, _need(metadata, "scores"), vocab)
    tokenizer = Tokenizer(_bpe(vocab, merges, byte_fallback=True, fuse_unk=True))
    spaces = normalizers.Replace(" ", "▁")
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
    else:
        tokenizer.normalizer = spaces
    return tokenizer


def merges_from_scores(tokens: list[str], scores: Sequence[float], vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    """SentencePiece's rule (join the neighbours whose union scores best) as an ordered list of merges."""
    if len(scores) != len(tokens):
        raise UnsupportedModelError(f"The GGUF file has {len(tokens)} tokens but {len(scores)} scores.")
    ranked: list[tuple[float, int, int, str, str]] = []
    for token, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocab and right in vocab:
                ranked.append((-score, vocab[left], vocab[right], left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]


def _bpe(vocab: dict[str, int], merges: list[tuple[str, str]], **options: bool) -> models.BPE:
    try:
        return models.BPE(vocab=vocab, merges=merges, **options)
    except Exception as error:  # the library raises nothing narrower
        raise UnsupportedModelError(f"The GGUF file's merges and tokens contradict each other: {error}") from error


def _swallowing(metadata: Mapping[str, Any], control: Mapping[str, int]) -> frozenset[int]:
    """GGUF doesn't say which control tokens swallow white space; Phi-3's are known to."""
    name = str(metadata.get("general.name", "")).lower().replace(" ", "-")
    if not any(phi in name for phi in ("phi-3", "phi3")):
        return frozenset()
    return frozenset(token for text, token in control.items() if text not in ("<unk>", "<s>", "<|endoftext|>"))


def _named_ids(metadata: Mapping[str, Any], size: int) -> dict[str, int]:
    names = {"bos": "bos", "eos": "eos", "eot": "eot", "eom": "eom", "unk": "unknown", "pad": "padding"}
    found: dict[str, int] = {}
    for name, key in names.items():
        token_id = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(token_id, int) and 0 <= token_id < size:
            found[name] = token_id
    return found


def _stop_ids(ids: Mapping[str, int], control: Mapping[str, int]) -> tuple[int, ...]:
    named = [ids[name] for name in ("eos", "eot", "eom") if name in ids]
    return tuple(dict.fromkeys([*named, *(control[ending] for ending in _ENDINGS if ending in control)]))


def _need(metadata: Mapping[str, Any], name: str) -> Any:
    key = f"tokenizer.ggml.{name}"
    if key not in metadata:
        raise UnsupportedModelError(f"The GGUF file has no {key}, so its text can't be encoded.")
    return metadata[key]
