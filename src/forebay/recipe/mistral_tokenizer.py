"""The tokenizer of a folder that has Mistral's own file (tekken.json, or tokenizer.model.v3 and the like) and no chat
template.

The vocabulary is rebuilt for the `tokenizers` library. Mistral's library, `mistral-common` (the extra `mistral`), reads
the file, and it is the reference that the typed template is proved to equal; it never encodes what is served, because
it says nothing of who wrote which token.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from forebay.core.errors import UnsupportedModelError
from forebay.recipe.gguf_tokenizer import gguf_parts
from forebay.recipe.pretokenizers import word_rule
from forebay.recipe.vocabulary import TokenizerParts, byte_spelling

_FILES: Final = ("tekken.json", "tokenizer.model.v*")
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6


def mistral_file(folder: Path) -> Path | None:
    """The folder's file of Mistral's own, if there is one."""
    return next((path for pattern in _FILES for path in sorted(folder.glob(pattern))), None)


def mistral_parts(path: Path) -> TokenizerParts:
    """Read the tokenizer. Raises UnsupportedModelError when mistral-common is missing or can't read the file."""
    try:
        from forebay.recipe.mistral_reference import MistralLibrary  # noqa: PLC0415 (needs an extra)
    except ImportError as error:
        raise UnsupportedModelError(
            f"The model's folder has no chat template, but Mistral's own {path.name}; reading it needs "
            f"mistral-common: pip install 'forebay[mistral]'."
        ) from error
    library = MistralLibrary(path)
    if path.suffix == ".json":
        metadata = _tekken(json.loads(path.read_text(encoding="utf-8")), library.control, library.size)
    else:
        metadata = _sentencepiece(path)
    metadata |= {
        "tokenizer.ggml.bos_token_id": library.bos_id,
        "tokenizer.ggml.eos_token_id": library.eos_id,
        "tokenizer.ggml.add_bos_token": True,
    }
    return replace(gguf_parts(metadata), reference=library.ids)


def _tekken(file: dict[str, Any], control: Sequence[str], size: int) -> dict[str, Any]:
    """Tiktoken's kind of vocabulary: the bytes of each token by rank, behind the control tokens."""
    if (file["config"]["pattern"],) != word_rule("tekken").patterns:
        raise UnsupportedModelError("The model's tekken.json cuts words by a pattern that is not known.")
    ranked = [byte_spelling(b64decode(token["token_bytes"])) for token in file["vocab"][: size - len(control)]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "tekken",
        "tokenizer.ggml.tokens": [*control, *ranked],
        "tokenizer.ggml.token_type": [_CONTROL] * len(control) + [_NORMAL] * len(ranked),
        "tokenizer.ggml.merges": list(_merges(ranked)),
    }


def _merges(ranked: Sequence[str]) -> Iterator[str]:
    """Every way to join two tokens into one, in the order of the joined tokens."""
    rank = {token: at for at, token in enumerate(ranked)}
    for token in ranked:
        ways = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [(rank[left], rank[right], left, right) for left, right in ways if left in rank and right in rank]
        for *_, left, right in sorted(known):
            yield f"{left} {right}"


def _sentencepiece(path: Path) -> dict[str, Any]:
    from sentencepiece import SentencePieceProcessor  # noqa: PLC0415 (comes with the extra)

    model = SentencePieceProcessor(model_file=str(path))
    ids = range(model.get_piece_size())
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [model.id_to_piece(token) for token in ids],
        "tokenizer.ggml.scores": [model.get_score(token) for token in ids],
        "tokenizer.ggml.token_type": [_kind(model, token) for token in ids],
    }


def _kind(model: Any, token: int) -> int:
    if model.is_unknown(token):
        return _UNKNOWN
    if model.is_control(token):
        return _CONTROL
    return _BYTE if model.is_byte(token) else _NORMAL
