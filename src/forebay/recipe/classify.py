"""Which tokens are control and which are content, by what they are and how the chat template uses them.

The `special` flag of a model's files is not enough: many markers that shape a conversation (`<think>`, `<tool_call>`,
DeepSeek's user and assistant markers) don't have it, and a vocabulary may list ordinary text (runs of spaces, HTML
tags) beside them. A token outside the ordinary vocabulary is control unless it is plainly content.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

MARKER: Final = re.compile(
    r"<[|\uff5c][^<>|\uff5c\s]+[|\uff5c]>|\[/?[A-Z][A-Z_0-9]*\]|<</?[A-Z]+>>|<(?:start|end)_of_turn>|<unused\d+>"
)
"""The shapes of structure: <|…|>, [INST], <<SYS>> and so on."""
_BRACKETS: Final = frozenset("<>[]{}|\uff5c")
_HTML: Final = re.compile(
    r"</?(?:a|b|blockquote|body|br|caption|code|col|colgroup|div|em|h[1-6]|head|hr|html|i|img|kbd|li|ol|p|pre|s|small|span"
    r"|strong|sub|sup|table|tbody|td|tfoot|th|thead|tr|u|ul)>"
)


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that the files list outside the ordinary vocabulary, or of a kind of its own."""

    id: int
    text: str
    special: bool
    """The files call it special (tokenizer.json) or control (GGUF)."""


class OrdinaryTokens(Protocol):
    """The vocabulary without added tokens; a model of the `tokenizers` library is one."""

    def token_to_id(self, token: str) -> int | None:
        """The id of a spelling."""

    def id_to_token(self, id: int) -> str | None:  # noqa: A002 (the library's name)
        """The spelling of an id."""


def is_control(token: AddedToken, template: str, named: Collection[int]) -> bool:
    """Judge one added token; `named` are the ids that the files name as BOS, EOS, padding and so on."""
    if token.special or token.id in named:
        return True
    if not token.text.strip(" \t\r\n▁"):
        return False
    if token.text in template:
        return True
    return not (_BRACKETS.isdisjoint(token.text) or _HTML.fullmatch(token.text))


def control_tokens(
    added: Collection[AddedToken], model: OrdinaryTokens, template: str, named: Collection[int]
) -> dict[str, int]:
    """Spelling to id of every control token.

    Of the ordinary vocabulary, what the files name, or what is spelled like a marker and used by the template, is
    control too, since some files forget to say so.
    """
    control = {token.text: token.id for token in added if is_control(token, template, named)}
    taken = {token.id for token in added}
    for token_id in set(named) - taken:
        text = model.id_to_token(token_id)
        if text is not None:
            control[text] = token_id
    for match in MARKER.finditer(template):
        marker = model.token_to_id(match[0])
        if marker is not None and marker not in taken:
            control[match[0]] = marker
    return control
