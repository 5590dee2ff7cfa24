"""A model's own Jinja chat template as a source of pieces.

What the template spells itself may become control tokens, by id; everything else is text. See `verify.py` for what is
proved when a model is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final

from jinja2 import TemplateError, TemplateSyntaxError

from forebay.core.errors import InvalidRequestError, UnsupportedModelError
from forebay.core.prompt import Origin
from forebay.recipe.conversation import Conversation, Message
from forebay.recipe.jinja.marked import FINAL, MARKS, ORIGIN_OF, TEMPLATE, Marked, runs
from forebay.recipe.jinja.sandbox import Budget, ChatEnvironment, RaisedByTemplateError
from forebay.recipe.pieces import Control, Piece, Text, Words

MAX_TEMPLATE_CHARS: Final = 1 << 18
RENDER_ERRORS: Final = (
    *(TemplateError, ArithmeticError, AttributeError, LookupError),
    *(TypeError, ValueError, RecursionError, MemoryError),
)
"""What a template may raise while it renders."""
_KEPT_STRUCTURES: Final = 1024


class JinjaTemplate:
    """One compiled template.

    `control` maps spellings to ids; `named` are the variables that hold tokens (`bos_token` and so on), which count as
    the template's own. Raises UnsupportedModelError when the template isn't valid or needs what the sandbox doesn't
    offer.
    """

    name = "jinja"

    def __init__(
        self, source: str, control: Mapping[str, int], named: Mapping[str, str], now: Callable[[], datetime]
    ) -> None:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise UnsupportedModelError(f"The model's chat template has {len(source)} characters; too many.")
        try:
            self._template = ChatEnvironment(now).from_string(source)
        except TemplateSyntaxError as error:
            raise UnsupportedModelError(f"The model's chat template is not valid: {error.message}") from error
        self._control = control
        self._structures: dict[str, tuple[Piece, ...]] = {}
        self._named = {name: Marked.of(text, TEMPLATE) for name, text in named.items()}

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation as the template renders it. Raises InvalidRequestError when the template refuses it."""
        rendered = self.render(conversation, continue_final=continue_final)
        _check_kept(rendered, conversation.messages)
        for text, mark in runs(rendered):
            if mark == TEMPLATE:
                yield from self._structure(text)
            else:
                yield Text(text, ORIGIN_OF[mark])

    def render(self, conversation: Conversation, *, continue_final: bool = False) -> Marked:
        """The rendered text with marks; with `continue_final` it ends with the last message's text."""
        messages = conversation.messages
        if continue_final and messages[-1].content.strip():
            return self._open(messages, conversation.thinking)
        closed = messages[:-1] if continue_final else messages
        given = [_given(message, MARKS[message.origin]) for message in closed]
        return self._run(given, conversation.thinking, ask=True)

    def _open(self, messages: list[Message], thinking: bool | None) -> Marked:
        """The last message's turn without its end.

        Some templates leave out earlier text when an answer comes last (Mistral puts the system message only before a
        question that is last). Then it is the prompt that asks for the answer, with the answer's beginning behind it.
        """
        earlier = [_given(message, MARKS[message.origin]) for message in messages[:-1]]
        final = Marked.of(messages[-1].content, FINAL)
        whole = self._run([*earlier, {"role": _role("assistant"), "content": final}], thinking, ask=False)
        end = whole.marks.rfind(FINAL) + 1
        if whole.marks.count(FINAL) < len(final.strip()):
            raise InvalidRequestError(
                "This model's chat template changes the assistant's message, so it can't be continued.",
                f"messages.{len(messages) - 1}",
            )
        asked = self._run(earlier, thinking, ask=True)
        if _texts(whole) - whole.marks.count(FINAL) >= _texts(asked):
            return whole[:end]
        start = whole.marks.index(FINAL)
        lead = whole[len(whole[:start].rstrip()) : start]
        return asked + whole[start:end] if asked.endswith(lead) else asked + lead + whole[start:end]

    def _run(self, messages: list[dict[str, Marked]], thinking: bool | None, *, ask: bool) -> Marked:
        switches = {} if thinking is None else {"enable_thinking": thinking, "thinking": thinking}
        try:
            return Marked(
                self._template.render(
                    messages=messages, add_generation_prompt=ask, range=Budget().range, **self._named, **switches
                )
            )
        except RaisedByTemplateError as error:
            raise InvalidRequestError(f"The model's chat template refuses this: {error.message}", "messages") from error
        except RENDER_ERRORS as error:
            raise InvalidRequestError(
                f"The model's chat template can't render this conversation: {error}", "messages"
            ) from error

    def _structure(self, text: str) -> tuple[Piece, ...]:
        """What the template spells itself: control tokens by id, and words. Templates repeat themselves, so it is
        kept."""
        known = self._structures.get(text)
        if known is None:
            known = tuple(self._split(text))
            if len(self._structures) < _KEPT_STRUCTURES:
                self._structures[text] = known
        return known

    def _split(self, text: str) -> Iterator[Piece]:
        spellings = sorted((each for each in self._control if each in text), key=len, reverse=True)
        pattern = re.compile("(" + "|".join(map(re.escape, spellings)) + ")") if spellings else None
        for place, part in enumerate(pattern.split(text) if pattern is not None else (text,)):
            if place % 2:
                yield Control(self._control[part])
            elif part:
                yield Words(part)


def _given(message: Message, mark: int) -> dict[str, Marked]:
    """A message as the template sees it."""
    return {"role": _role(message.role), "content": Marked.of(message.content, mark)}


def _role(role: str) -> Marked:
    """A role is one of a fixed set, so it counts as the template's own word."""
    return Marked.of(role, TEMPLATE)


def _texts(rendered: Marked) -> int:
    """How many characters are someone's text."""
    return len(rendered) - rendered.marks.count(TEMPLATE)


def _check_kept(rendered: Marked, messages: list[Message]) -> None:
    """Raise InvalidRequestError when the template silently leaves out what a system or user message says."""
    for origin in (Origin.SYSTEM, Origin.USER):
        given = sum(len(message.content.strip()) for message in messages if message.origin is origin)
        if rendered.marks.count(MARKS[origin]) < given:
            places = [at for at, message in enumerate(messages) if message.origin is origin]
            raise InvalidRequestError(
                f"This model's chat template leaves out a {origin} message at this place of a conversation.",
                f"messages.{places[-1]}",
            )
