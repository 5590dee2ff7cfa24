"""Phi: a head for each role (one control token, or the role's name between two), the text, an end token. No tools.

The models differ in small ways: Phi-3 has a line break behind each token; the first templates of Phi-3 and Phi-4 put
the assistant's head behind every question, and Phi-3's leave system messages out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from forebay.core.errors import ConversationError
from forebay.recipe.conversation import Conversation, Message, Role
from forebay.recipe.order import RoleOrder, SystemPlace
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.templates.answers import kept_or
from forebay.recipe.templates.refusals import refuse_tools
from forebay.recipe.vocabulary import Vocabulary

_ROLES: Final[tuple[Role, ...]] = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What differs between the models' templates."""

    name: str
    header: bool = False
    """The role's name stands between two tokens."""
    line: str = ""
    """Words behind each token."""
    bos: bool = False
    """The template writes BOS."""
    question_opens_answer: bool = False
    """The assistant's head stands behind every question instead of before every answer."""
    system: bool = True
    skips_empty_system: bool = False


STYLES: Final = (
    Style(name="phi3", line="\n", skips_empty_system=True),
    Style(name="phi3", line="\n", bos=True),
    Style(name="phi3", line="\n", question_opens_answer=True, system=False),
    Style(name="phi3", line="\n", question_opens_answer=True, system=False, bos=True),
    Style(name="phi4-mini"),
    Style(name="phi4", header=True),
    Style(name="phi4", header=True, question_opens_answer=True),
)


@dataclass(frozen=True, slots=True)
class Phi:
    """One style, bound to a vocabulary."""

    style: Style
    heads: dict[Role, tuple[Piece, ...]]
    end: tuple[Piece, ...]
    begin: tuple[Piece, ...]

    @property
    def name(self) -> str:
        """The style's name."""
        return self.style.name

    @property
    def order(self) -> RoleOrder:
        """Which roles may follow which."""
        return RoleOrder(SystemPlace.ANYWHERE if self.style.system else SystemPlace.NOWHERE, tools=False)

    @classmethod
    def of(cls, vocabulary: Vocabulary, style: Style) -> Phi:
        """Bind to a vocabulary. Raises KeyError when it lacks a token."""
        line, token = Words(style.line), vocabulary.control_id
        heads: dict[Role, tuple[Piece, ...]]
        if style.header:
            start, name_end = Control(token("<|im_start|>")), Control(token("<|im_sep|>"))
            heads = {role: (start, Words(role), name_end) for role in _ROLES}
        else:
            heads = {role: (Control(token(f"<|{role}|>")), line) for role in _ROLES}
        end = Control(token("<|im_end|>" if style.header else "<|end|>"))
        begin: tuple[Piece, ...] = ()
        if style.bos:
            if vocabulary.bos_id is None:
                raise KeyError("bos_token")
            begin = (Control(vocabulary.bos_id),)
        return cls(style, heads, (end, line), begin)

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation up to the assistant's text; with `continue_final` its last message stays open.

        Raises InvalidRequestError for tools, ConversationError for a system message where there is no place for one.
        """
        refuse_tools(conversation)
        messages = conversation.messages
        yield from self.begin
        for at, message in enumerate(messages):
            yield from self._turn(message, at, is_open=continue_final and at == len(messages) - 1)
        if not (continue_final or self.style.question_opens_answer):
            yield from self.heads["assistant"]

    def _turn(self, message: Message, index: int, *, is_open: bool) -> Iterator[Piece]:
        opens = self.style.question_opens_answer
        if message.role == "system":
            if not self.style.system:
                raise ConversationError(
                    "This model's chat template has no place for a system message.", ("messages", index, "role")
                )
            if self.style.skips_empty_system and not message.content:
                return
        if not (opens and message.role == "assistant"):
            yield from self.heads[message.role]
        yield from kept_or(message, [Text(message.content, message.origin)], reasoning=False)
        if not is_open:
            yield from self.end
        if opens and message.role == "user":
            yield from self.heads["assistant"]
