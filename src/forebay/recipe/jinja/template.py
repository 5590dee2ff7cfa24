"""A model's own Jinja chat template as a source of pieces.

What the template spells itself may become control tokens, by id; everything else is text. See `verify.py` for what is proved
when a model is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from jinja2 import TemplateError, TemplateSyntaxError

from forebay.core.errors import InvalidRequestError, UnsupportedModelError
from forebay.recipe.conversation import Conversation, Message
from forebay.recipe.jinja.marked import FINAL, MARKS, ORIGIN_OF, TEMPLATE, Marked, runs
from forebay.recipe.jinja.sandbox import Budget, ChatEnvironment, RaisedByTemplateError
from forebay.recipe.pieces import Control, Piece, Text, Words

MAX_TEMPLATE_CHARS: Final = 1 << 18


class JinjaTemplate:
    """One compiled template.

    `control` maps spellings to ids; `named` are the variables that hold tokens (`bos_token` and so on), which count as
    the template's own. Raises UnsupportedModelError when the template isn't valid or needs what the sandbox doesn't offer.
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
        spellings = sorted(control, key=len, reverse=True)
        self._spelling = re.compile("|".join(map(re.escape, spellings))) if spellings else None
        self._named = {name: Marked.of(text, TEMPLATE) for name, text in named.items()}

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation as the template renders it. Raises InvalidRequestError when the template refuses it."""
        rendered = self.render(conversation, continue_final=continue_final)
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
        if continue_final:
            messages = messages[:-1]
        given = [_given(message, MARKS[message.origin]) for message in messages]
        return self._run(given, conversation.thinking, ask=True)

    def _open(self, messages: list[Message], thinking: bool | None) -> Marked:
        given = [_given(message, MARKS[message.origin]) for message in messages[:-1]]
        rendered = self._run([*given, _given(messages[-1], FINAL)], thinking, ask=False)
        end = rendered.marks.rfind(FINAL)
        written = rendered.marks.count(FINAL)
        if end < 0 or written != len(messages[-1].content.strip()) and written != len(messages[-1].content):
            raise InvalidRequestError(
                "This model's chat template changes the assistant's message, so it can't be continued.",
                f"messages.{len(messages) - 1}",
            )
        return rendered[: end + 1]

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
        except (
            TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            RecursionError,
        ) as error:
            raise InvalidRequestError(
                f"The model's chat template can't render this conversation: {error}", "messages"
            ) from error

    def _structure(self, text: str) -> Iterator[Piece]:
        at = 0
        for match in self._spelling.finditer(text) if self._spelling is not None else ():
            if match.start() > at:
                yield Words(text[at : match.start()])
            yield Control(self._control[match[0]])
            at = match.end()
        if at < len(text):
            yield Words(text[at:])


def _given(message: Message, mark: int) -> dict[str, Any]:
    """A message as the template sees it. The role is one of a fixed set, so it counts as the template's."""
    return {"role": Marked.of(message.role, TEMPLATE), "content": Marked.of(message.content, mark)}
