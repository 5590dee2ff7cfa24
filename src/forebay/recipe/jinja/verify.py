"""What is proved of a chat template before its model is served.

Small conversations with known words are rendered twice, by the marking sandbox and by plain Jinja. The two have to
agree on every character; each known word has to carry its own origin; and every control spelling in the plain rendering
has to be one that the marks show as the template's. Otherwise the template does something whose origin can't be
followed, and the model is refused with the reason, instead of being served with a prompt that lacks structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final

from jinja2 import Template

from forebay.core.errors import InvalidRequestError, UnsupportedModelError
from forebay.core.prompt import Origin
from forebay.recipe.conversation import Conversation, Message
from forebay.recipe.jinja.marked import MARKS, TEMPLATE
from forebay.recipe.jinja.sandbox import BoundedEnvironment, Budget
from forebay.recipe.jinja.template import RENDER_ERRORS, JinjaTemplate

_WORDS: Final = {"system": "Zulu quebec", "user": "Whiskey xray", "assistant": "Kilo juliett"}
_SHAPES: Final = (("user",), ("system", "user"), ("user", "assistant", "user"), ("system", "user", "assistant", "user"))


def probes() -> Iterator[Conversation]:
    """Conversations of each usual shape; every message says a word of its own."""
    for shape in _SHAPES:
        messages = [Message(role, f"{_WORDS[role]} {at}") for at, role in enumerate(shape)]  # type: ignore[arg-type]
        for thinking in (None, True, False):
            yield Conversation(messages, thinking=thinking)


def verify(
    template: JinjaTemplate,
    source: str,
    control: Mapping[str, int],
    named: Mapping[str, str],
    now: Callable[[], datetime],
) -> None:
    """Raise UnsupportedModelError, with the reason, when the template's text can't be told from the messages'."""
    reference = BoundedEnvironment(now).from_string(source)
    refusal: InvalidRequestError | None = None
    rendered_any = False
    for conversation in probes():
        try:
            marked = template.render(conversation)
            _compare(marked, marked.marks, _plain(reference, conversation, named), conversation, control)
            list(template.pieces(conversation))
            rendered_any = True
        except InvalidRequestError as error:
            refusal = error
    if not rendered_any and refusal is not None:
        raise UnsupportedModelError(f"The model's chat template renders not even one user message. {refusal.message}")


def _plain(reference: Template, conversation: Conversation, named: Mapping[str, str]) -> str:
    thinking = conversation.thinking
    switches = {} if thinking is None else {"enable_thinking": thinking, "thinking": thinking}
    messages = [{"role": message.role, "content": message.content} for message in conversation.messages]
    try:
        return reference.render(
            messages=messages, add_generation_prompt=True, range=Budget().range, **named, **switches
        )
    except RENDER_ERRORS as error:
        raise UnsupportedModelError(f"The model's chat template fails: {error}") from error


def _compare(marked: str, marks: bytes, text: str, conversation: Conversation, control: Mapping[str, int]) -> None:
    if str.__str__(marked) != text:
        raise UnsupportedModelError(
            "The model's chat template renders differently when the origin of text is followed."
        )
    for message in conversation.messages:
        _check_origin(message, marks, text)
    for spelling in control:
        at = text.find(spelling)
        while at >= 0:
            if set(marks[at : at + len(spelling)]) != {TEMPLATE}:
                raise UnsupportedModelError(
                    f"The model's chat template builds the control token {spelling!r} in a way that loses its origin."
                )
            at = text.find(spelling, at + len(spelling))


def _check_origin(message: Message, marks: bytes, text: str) -> None:
    at = text.find(message.content)
    expected = bytes((MARKS[message.origin],)) * len(message.content)
    while at >= 0:
        if marks[at : at + len(message.content)] != expected:
            raise UnsupportedModelError(
                f"The model's chat template loses who wrote the text of {_name(message.origin)} messages."
            )
        at = text.find(message.content, at + 1)


def _name(origin: Origin) -> str:
    return origin.value
