"""Chooses the chat template: a typed one where it is proved to do what the model's own does, else the model's own.

The proof is by comparison: both encode the same conversations, of every shape that templates treat differently, and the
ids have to be equal, and so does what is refused. A typed template may offer tools where the model's own knows none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Final, Protocol, cast

from forebay.core.errors import ConversationError, InvalidRequestError
from forebay.recipe.by_reference import choose_by_reference
from forebay.recipe.conversation import Conversation, Message
from forebay.recipe.delimiters import plain_delimiters
from forebay.recipe.encoder import PromptEncoder
from forebay.recipe.jinja.template import JinjaTemplate
from forebay.recipe.jinja.verify import verify
from forebay.recipe.pieces import Control, Piece, Text, Words
from forebay.recipe.probes import plain_probes, tool_probes
from forebay.recipe.templates.chatml import ChatML
from forebay.recipe.templates.deepseek_v3 import DeepSeekV3
from forebay.recipe.templates.gemma import Gemma
from forebay.recipe.templates.harmony import Harmony
from forebay.recipe.templates.instruct import STYLES, Instruct
from forebay.recipe.templates.llama3 import Llama3
from forebay.recipe.templates.mistral import Mistral
from forebay.recipe.templates.mistral_styles import STYLES as MISTRAL_STYLES
from forebay.recipe.templates.phi import STYLES as PHI_STYLES
from forebay.recipe.templates.phi import Phi
from forebay.recipe.templates.qwen3 import Qwen3
from forebay.recipe.unpublished import template_by_tokens
from forebay.recipe.vocabulary import TokenizerParts, Vocabulary

_FREE: Final[tuple[int, ...]] = (-1,)


class ChatTemplate(Protocol):
    """What turns a conversation into pieces."""

    @property
    def name(self) -> str:
        """A short name, such as `chatml`; `jinja` for a template of the model's own."""

    def pieces(self, conversation: Conversation, *, continue_final: bool = False) -> Iterator[Piece]:
        """The prompt that asks for the next message, or with `continue_final` for the rest of the last one."""


def choose_template(parts: TokenizerParts, vocabulary: Vocabulary, now: Callable[[], datetime]) -> ChatTemplate | None:
    """The template to use; None when the model has none.

    Raises UnsupportedModelError when the model has a template that can't be followed safely, and when it is of a kind
    that has none but can't be proved equal to its maker's encoder.
    """
    source = parts.chat_template
    if source is None and parts.reference is not None:
        return choose_by_reference(parts.reference, vocabulary)
    if source is None:
        return cast("ChatTemplate | None", template_by_tokens(vocabulary, now))
    own = JinjaTemplate(source, vocabulary.control, parts.named, now)
    verify(own, source, vocabulary.control, parts.named, now)
    encoder = PromptEncoder(vocabulary)
    switch = "enable_thinking" in source
    probes = [*plain_probes(thinking=switch), *(tool_probes(thinking=switch) if own.abilities.tools else ())]
    expected = [_expected(encoder, own, *probe) for probe in probes]
    for candidate in _candidates(vocabulary, own, now, knows_tools="tools" in source):
        if all(_agrees(encoder, candidate, probe, ids) for probe, ids in zip(probes, expected, strict=True)):
            return candidate
    return own


def turn_end(template: ChatTemplate) -> int | None:
    """The control token that the template puts behind an answer; None when there is none right behind it."""
    messages = [Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "Hi")]
    try:
        pieces = list(template.pieces(Conversation(messages)))
    except InvalidRequestError:
        return None
    answered = False
    for piece in pieces:
        if isinstance(piece, Control) and answered:
            return piece.id
        if isinstance(piece, Text) or piece_text(piece).strip():
            answered = isinstance(piece, Text) and piece.text.strip() == "Hello"
    return None


def answer_ends(template: ChatTemplate, vocabulary: Vocabulary) -> tuple[int, ...]:
    """The control tokens that end an answer. In harmony `<|end|>` only ends one of its messages."""
    control = vocabulary.control
    if "<|channel|>" in control and "<|return|>" in control and "<|call|>" in control:
        return control["<|return|>"], control["<|call|>"]
    end = turn_end(template)
    return () if end is None else (end,)


def delimiters_of(template: ChatTemplate) -> set[str]:
    """What the template delimits turns with that is plain text: what it names, and what looks like it."""
    return plain_delimiters(sample_pieces(template)).union(getattr(template, "delimiters", ()))


def piece_text(piece: Piece) -> str:
    """The plain text of a piece; none for a control token and for kept ids."""
    return piece.text if isinstance(piece, Words | Text) else ""


def sample_pieces(template: ChatTemplate) -> Iterator[Piece]:
    """What the template says in conversations of the usual shapes."""
    for conversation, continue_final in chain(plain_probes(thinking=False), tool_probes(thinking=False)):
        try:
            yield from template.pieces(conversation, continue_final=continue_final)
        except InvalidRequestError:
            continue


def _outcome(
    encoder: PromptEncoder, template: ChatTemplate, conversation: Conversation, continue_final: bool
) -> Sequence[int] | None:
    """The ids, or None for a conversation that the template refuses."""
    try:
        return encoder.encode(template.pieces(conversation, continue_final=continue_final)).ids
    except InvalidRequestError:
        return None


def _expected(
    encoder: PromptEncoder, own: ChatTemplate, conversation: Conversation, continue_final: bool
) -> Sequence[int] | None:
    """What a typed template has to do: these ids, or refuse (None).

    `_FREE` leaves it to decide, where the model's own can't continue a message, or fails with tools or leaves out a
    message beside them without saying so.
    """
    try:
        return encoder.encode(own.pieces(conversation, continue_final=continue_final)).ids
    except ConversationError:
        return _FREE if continue_final else None
    except InvalidRequestError:
        return _FREE if continue_final or conversation.tools else None


def _agrees(
    encoder: PromptEncoder, candidate: ChatTemplate, probe: tuple[Conversation, bool], expected: Sequence[int] | None
) -> bool:
    """Whether the candidate does the same."""
    return expected is _FREE or _outcome(encoder, candidate, *probe) == expected


def _candidates(
    vocabulary: Vocabulary, own: JinjaTemplate, now: Callable[[], datetime], *, knows_tools: bool
) -> Iterator[ChatTemplate]:
    """The typed templates whose tokens the vocabulary has. `knows_tools`: the model's own has something to say of
    tools, so where it can't be followed with them, no typed template speaks for it."""
    makers: list[Callable[[], object]] = [
        lambda: Qwen3.of(vocabulary),
        lambda: ChatML.of(vocabulary, _default_system(own), takes_tools=own.abilities.tools or not knows_tools),
        lambda: Llama3.of(vocabulary, "llama3"),
        lambda: Llama3.of(vocabulary, "llama3.1", lambda: "26 Jul 2024"),
        lambda: Llama3.of(vocabulary, "llama3.2", lambda: now().strftime("%d %b %Y")),
        *(partial(Mistral.of, vocabulary, style, lambda: _opening(own)) for style in MISTRAL_STYLES),
        lambda: Gemma.of(vocabulary, "gemma2", takes_system=False),
        lambda: Gemma.of(vocabulary, "gemma3", takes_system=True),
        *(partial(Phi.of, vocabulary, style) for style in PHI_STYLES),
        lambda: Harmony.of(vocabulary, now, published=True),
        lambda: DeepSeekV3.of(vocabulary, "deepseek-v3.1", reasons=True),
        lambda: DeepSeekV3.of(vocabulary, "deepseek-v3", reasons=False),
    ]
    for make in makers:
        try:
            yield cast("ChatTemplate", make())
        except KeyError:
            continue
    for style in STYLES:
        try:
            yield Instruct.of(vocabulary, style)
        except KeyError:
            return


def _default_system(own: ChatTemplate) -> str | None:
    """The system message that a template of the ChatML family puts before a lone user message."""
    pieces = list(own.pieces(Conversation([Message("user", "Hi")])))[1:2]
    for piece in pieces:
        if isinstance(piece, Words) and piece.text.startswith("system\n"):
            return piece.text.removeprefix("system\n")
    return None


def _opening(own: ChatTemplate) -> list[Piece]:
    """What a template of Mistral's puts before the first question of a conversation without a system message; it may
    state the date."""
    pieces = list(own.pieces(Conversation([Message("user", "Hi")])))
    question = next(at for at, piece in enumerate(pieces) if isinstance(piece, Text))
    begin = question - 1 if isinstance(pieces[question - 1], Control) else question - 2
    return pieces[1:begin]
