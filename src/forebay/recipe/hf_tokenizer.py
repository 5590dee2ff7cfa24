"""The tokenizer of a Hugging Face folder: tokenizer.json and the small JSON files beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from forebay.core.errors import UnsupportedModelError
from forebay.recipe.classify import AddedToken, control_tokens
from forebay.recipe.mistral_tokenizer import mistral_file, mistral_parts
from forebay.recipe.plain_tokenizer import plain_clone, prefix_of, scheme_of, without_prefix
from forebay.recipe.vocabulary import Prefix, TokenizerParts

_NAMED: Final = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def hf_parts(folder: Path) -> TokenizerParts:
    """Read a folder's tokenizer. Raises UnsupportedModelError that names the file or the feature that is missing."""
    config = _json(folder / "tokenizer_config.json")
    template = _chat_template(folder, config)
    own_file = mistral_file(folder)
    if template is None and own_file is not None:
        return mistral_parts(own_file)
    tokenizer = _tokenizer(folder)
    named = {name: text for name in _NAMED if (text := _token_text(config.get(name))) is not None}
    stop_ids = _stop_ids(folder, tokenizer, named)
    added = tokenizer.get_added_tokens_decoder()
    named_ids = {token_id for text in named.values() if (token_id := tokenizer.token_to_id(text)) is not None}
    control = control_tokens(
        [AddedToken(token_id, token.content, token.special) for token_id, token in added.items()],
        tokenizer.model,
        template or "",
        named_ids | set(stop_ids),
    )
    content = [(token_id, token) for token_id, token in added.items() if token.content not in control]
    plain, kept = plain_clone(tokenizer, content)
    prefix = prefix_of(plain)
    bos = named.get("bos_token")
    return TokenizerParts(
        plain=plain,
        continued=plain if prefix is Prefix.NONE else without_prefix(plain),
        scheme=scheme_of(plain),
        prefix=prefix,
        size=1 + max(max(added, default=-1), tokenizer.get_vocab_size(with_added_tokens=False) - 1),
        control=control,
        content=kept,
        bos_id=None if bos is None else tokenizer.token_to_id(bos),
        adds_bos=_adds_bos(tokenizer, config, bos),
        stop_ids=stop_ids,
        chat_template=template,
        named=named,
        swallows_before=frozenset(token_id for token_id, token in added.items() if token.lstrip),
        swallows_behind=frozenset(token_id for token_id, token in added.items() if token.rstrip),
    )


def _tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise UnsupportedModelError(
            "The model's folder has no tokenizer.json; other tokenizer files are not supported."
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise UnsupportedModelError(f"The model's tokenizer.json can't be read: {error}") from error


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template") or _json(folder / "chat_template.json").get("chat_template")
    if isinstance(template, list):
        by_name = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}
        template = by_name.get("default")
    return template if isinstance(template, str) and template else None


def _stop_ids(folder: Path, tokenizer: Tokenizer, named: Mapping[str, str]) -> tuple[int, ...]:
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        ids = _json(folder / name).get("eos_token_id")
        found += [each for each in (ids if isinstance(ids, list) else [ids]) if isinstance(each, int)]
    eos = tokenizer.token_to_id(named["eos_token"]) if "eos_token" in named else None
    return tuple(dict.fromkeys([*found, *([] if eos is None else [eos])]))


def _adds_bos(tokenizer: Tokenizer, config: Mapping[str, Any], bos: str | None) -> bool:
    """What tokenizer_config.json says, else whether the tokenizer itself puts BOS before a text."""
    if bos is None:
        return False
    said = config.get("add_bos_token")
    if isinstance(said, bool):
        return said
    return tokenizer.encode("a").ids[:1] == [tokenizer.token_to_id(bos)]


def _token_text(value: Any) -> str | None:
    """A named token is a string, or an object with its spelling as `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnsupportedModelError(f"The model's {path.name} is not valid JSON: {error}") from error
    return value if isinstance(value, dict) else {}
