"""A model's own Jinja chat template as a source of pieces.

What the template spells itself may become control tokens, by id; everything else is text. See `verify.py` for what is
proved when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from jinja2 import TemplateError, TemplateSyntaxError

from forebay.core.errors import ConversationError, InvalidRequestError, UnsupportedModelError
from forebay.core.prompt import Origin
from forebay.recipe.conversation import Conversation, Message
from forebay.recipe.jinja.abilities import Abilities
from forebay.recipe.jinja.given import given_messages, given_tools, marked
from forebay.recipe.jinja.kept import split_kept
from forebay.recipe.jinja.marked import FINAL, MARKS, ORIGIN_OF, TEMPLATE, Marked, runs
from forebay.recipe.jinja.sandbox import Budget, ChatEnvironment, RaisedByTemplateError
from forebay.recipe.order import RoleOrder
from forebay.recipe.pieces import Kept, Piece, Text
from forebay.recipe.templates.spelled import Speller

MAX_TEMPLATE_CHARS: Final = 1 << 18
RENDER_ERRORS: Final = (
    *(TemplateError, ArithmeticError, AttributeError, LookupError),
    *(TypeError, ValueError, RecursionError, MemoryError),
)
"""What a template may raise while it renders."""


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
        self._speller = Speller(control)
        self._named = {name: Marked.of(text, TEMPLATE) for name, text in named.items()}
        self.abilities = Abilities()
        """What the template can render, as `verify.py` found; the default says yes to everything."""

        self.arguments_as_text = False
        """Whether the template takes a call's arguments as JSON text rather than as an object."""

    @property
    def order(self) -> RoleOrder:
        """Which roles may follow which."""
        return self.abilities.order

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The conversation as the template renders it. Raises InvalidRequestError when the template refuses it."""
        self.abilities.check(conversation)
        rendered = self.render(conversation, continue_final=continue_final)
        _check_kept(rendered, conversation.messages)
        for part in split_kept(rendered, conversation.messages, self.abilities.answer):
            if isinstance(part, Kept):
                yield part
                continue
            for text, mark in runs(part):
                if mark == TEMPLATE:
                    yield from self._speller.pieces(text)
                else:
                    yield Text(text, ORIGIN_OF[mark])

    def render(self, conversation: Conversation, *, continue_final: bool = False) -> Marked:
        """The rendered text with marks; with `continue_final` it ends with the last message's text."""
        messages = conversation.messages
        if continue_final and messages[-1].content.strip():
            return self._open(conversation)
        closed = messages[:-1] if continue_final else messages
        return self._run(self._given(closed), conversation, ask=True)

    def _open(self, conversation: Conversation) -> Marked:
        """The last message's turn without its end.

        Some templates leave out earlier text when an answer comes last (Mistral puts the system message only before a
        question that is last). Then it is the prompt that asks for the answer, with the answer's beginning behind it.
        """
        messages = conversation.messages
        earlier = self._given(messages[:-1])
        final = Marked.of(messages[-1].content, FINAL)
        opened = self._given(messages[-1:])[0] | {"content": final}
        whole = self._run([*earlier, opened], conversation, ask=False)
        end = whole.marks.rfind(FINAL) + 1
        if whole.marks.count(FINAL) < len(final.strip()):
            raise InvalidRequestError(
                "This model's chat template changes the assistant's message, so it can't be continued.",
                f"messages.{len(messages) - 1}",
            )
        asked = self._run(earlier, conversation, ask=True)
        if _texts(whole) - whole.marks.count(FINAL) >= _texts(asked):
            return whole[:end]
        start = whole.marks.index(FINAL)
        lead = whole[len(whole[:start].rstrip()) : start]
        return asked + whole[start:end] if asked.endswith(lead) else asked + lead + whole[start:end]

    def _given(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        return given_messages(messages, marked, as_text=self.arguments_as_text)

    def _run(self, messages: list[dict[str, Any]], conversation: Conversation, *, ask: bool) -> Marked:
        tools = given_tools(conversation.tools, marked) or None
        try:
            return Marked(
                self._template.render(
                    messages=messages,
                    tools=tools,
                    add_generation_prompt=ask,
                    range=Budget().range,
                    **self._named,
                    **switches(conversation),
                )
            )
        except RaisedByTemplateError as error:
            said = f"The model's chat template refuses this: {error.message}"
            raise ConversationError(said, ("messages",)) from error
        except RENDER_ERRORS as error:
            raise InvalidRequestError(
                f"The model's chat template can't render this conversation: {error}", "messages"
            ) from error


def switches(conversation: Conversation) -> dict[str, Any]:
    """The variables by which a conversation chooses how the model reasons."""
    chosen: dict[str, Any] = {}
    if conversation.thinking is not None:
        chosen |= {"enable_thinking": conversation.thinking, "thinking": conversation.thinking}
    if conversation.effort is not None:
        chosen["reasoning_effort"] = Marked.of(conversation.effort, TEMPLATE)
    return chosen


def _texts(rendered: Marked) -> int:
    """How many characters are someone's text."""
    return len(rendered) - rendered.marks.count(TEMPLATE)


def _check_kept(rendered: Marked, messages: Sequence[Message]) -> None:
    """Raise InvalidRequestError when the template silently leaves out what a system, user or tool message says."""
    for origin in (Origin.SYSTEM, Origin.USER, Origin.TOOL):
        given = sum(len(message.content.strip()) for message in messages if message.origin is origin)
        if rendered.marks.count(MARKS[origin]) < given:
            places = [at for at, message in enumerate(messages) if message.origin is origin]
            raise InvalidRequestError(
                f"This model's chat template leaves out a {origin} message at this place of a conversation.",
                f"messages.{places[-1]}",
            )
