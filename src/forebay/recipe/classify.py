"""Which tokens are control and which are content, by what they are and how the chat template uses them.

The `special` flag of a model's files is not enough: many markers that shape a conversation (`<think>`, `<tool_call>`,
DeepSeek's user and assistant markers) don't have it, and a vocabulary may list ordinary text (runs of spaces, HTML tags) beside them.
A token outside the ordinary vocabulary is control unless it is plainly content.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

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
    added: Collection[AddedToken], ordinary: Mapping[str, int], template: str, named: Collection[int]
) -> dict[str, int]:
    """Spelling to id of every control token.

    `ordinary` is the rest of the vocabulary. Of that, what the files name, or what is spelled like a marker and used by
    the template, is control too, since some files forget to say so.
    """
    control = {token.text: token.id for token in added if is_control(token, template, named)}
    taken = {token.id for token in added}
    by_id = {token_id: text for text, token_id in ordinary.items() if token_id in named and token_id not in taken}
    control |= {text: token_id for token_id, text in by_id.items()}
    for match in MARKER.finditer(template):
        token_id = ordinary.get(match[0])
        if token_id is not None and token_id not in taken:
            control[match[0]] = token_id
    return control

