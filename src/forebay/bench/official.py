"""The same conversation through `transformers`: its chat template and its tokenizer, with the model's own files. Only a
benchmark's other side; `transformers` is optional.
"""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Any

from tokenizers import AddedToken, Tokenizer

from forebay.recipe.vocabulary import TokenizerParts


class OfficialTemplate:
    """`apply_chat_template` with tokenising, over the tokenizer that the recipe's parts describe."""

    def __init__(self, parts: TokenizerParts) -> None:
        """Raises ModuleNotFoundError when transformers is not installed."""
        logging.getLogger("transformers").setLevel(logging.ERROR)
        from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 (optional, and slow to import)

        self.version = version("transformers")
        make: Any = PreTrainedTokenizerFast
        self._tokenizer = make(tokenizer_object=_whole(parts))
        self._tokenizer.chat_template = parts.chat_template
        for name, spelling in parts.named.items():
            setattr(self._tokenizer, name, spelling)

    def ids(self, messages: list[dict[str, Any]]) -> list[int]:
        """The ids of a conversation in Chat Completions' shape, ready for an answer."""
        found = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        return list(found)


def _whole(parts: TokenizerParts) -> Tokenizer:
    """The model's tokenizer with its control tokens, which the recipe keeps apart."""
    plain = parts.plain
    whole = Tokenizer(plain.model)
    if plain.normalizer is not None:
        whole.normalizer = plain.normalizer
    if plain.pre_tokenizer is not None:
        whole.pre_tokenizer = plain.pre_tokenizer
    added = [(token_id, AddedToken(text, special=True, normalized=False)) for text, token_id in parts.control.items()]
    added += list(plain.get_added_tokens_decoder().items())
    whole.add_tokens([token for _, token in sorted(added, key=lambda item: item[0])])
    return whole
