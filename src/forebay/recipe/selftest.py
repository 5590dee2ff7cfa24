"""The proof at start: no control token's spelling, typed as text, becomes a control token.

It is by trial, on this model's own tokenizer, because the ways to leak are the vocabulary's: a marker in the base
vocabulary, merges that spell it, a normaliser that folds look-alikes into it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Final

from forebay.core.errors import UnsupportedModelError
from forebay.recipe.vocabulary import Prefix, Vocabulary

_WIDE: Final = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
"""ASCII to the same characters in full width."""
_UNSEEN: Final = ("\u200b", "\u00ad", "\ufe0f", "\x00")
"""Zero-width space, soft hyphen, variation selector, NUL: what text cleaning takes out."""


def check_text_is_plain(vocabulary: Vocabulary) -> None:
    """Encode every control spelling as text in every context. Raises UnsupportedModelError naming a token that
    leaks."""
    texts = list(dict.fromkeys(text for spelling in vocabulary.control for text in _contexts(spelling)))
    for continued in (False, True) if vocabulary.prefix is not Prefix.NONE else (False,):
        for text, ids in zip(texts, vocabulary.unchecked_batch(texts, continued=continued), strict=True):
            if not vocabulary.control_ids.isdisjoint(ids):
                _refuse(vocabulary, text, ids)


def _contexts(spelling: str) -> Iterator[str]:
    """The spelling alone; in a text beside letters, spaces, line breaks, itself and its own halves (as parts of a
    message are joined); then what a normaliser could fold into it."""
    half = len(spelling) // 2
    yield spelling
    yield (
        f"a{spelling}b {spelling} \n{spelling}\n{spelling}{spelling} {spelling}."
        f"{spelling[:half]}\n{spelling[half:]} {spelling[:half]}{spelling}{spelling[half:]}"
    )
    yield " ".join(sorted(look_alikes(spelling)))


def look_alikes(spelling: str) -> set[str]:
    """What a normaliser may fold onto a spelling: other cases, widths and compositions, and the same with characters
    inside that are not seen."""
    changed = [spelling.replace("|", "\uff5c"), spelling.replace("\uff5c", "|")]
    changed += [spelling.upper(), spelling.lower(), spelling.translate(_WIDE)]
    changed += [unicodedata.normalize(form, spelling) for form in ("NFC", "NFD", "NFKC", "NFKD")]
    changed += [each.join(spelling) for each in _UNSEEN]
    return {text for text in changed if text != spelling}


def _refuse(vocabulary: Vocabulary, text: str, ids: list[int]) -> None:
    by_id = {token_id: spelling for spelling, token_id in vocabulary.control.items()}
    leaked = next(by_id[token_id] for token_id in ids if token_id in by_id)
    raise UnsupportedModelError(
        f"The model can't be served safely: its tokenizer turns the text {text!r} into the control token {leaked!r}."
    )
