"""Chooses the typed template of a model whose maker's library, not a Jinja template, says how it is prompted.

The proof is by comparison, as in `selection.py`: of conversations with and without tools, those that both serve have to
get the same ids. Here what is refused may differ, because a library may merge or move messages where the typed template
has an order of roles. No question begins with a line break: behind a system message the encoder keeps it apart from the
template's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from forebay.core.errors import InvalidRequestError, UnsupportedModelError
from forebay.recipe.conversation import Conversation, Message, ToolCall, ToolSpec
from forebay.recipe.encoder import PromptEncoder
from forebay.recipe.templates.instruct import STYLES as PLAIN_STYLES
from forebay.recipe.templates.instruct import Instruct
from forebay.recipe.templates.mistral import Mistral
from forebay.recipe.templates.mistral_styles import STYLES
from forebay.recipe.vocabulary import Reference, Vocabulary

_PLACE: Final = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
_TOOLS: Final = [ToolSpec("look", 'Look at a "place".', _PLACE), ToolSpec("run")]
_ASK: Final = [Message("system", "Be brief.\n"), Message("user", "  Hi "), Message("assistant", " Hello  ")]
_QUESTION: Final = Message("user", "What is\n17 + 25?\n")
_CALL: Final = ToolCall("aB3dE6gH9", "look", '{"place": "Oslo", "n": [1, 2.5]}')
_CALLS: Final = Message("assistant", "", calls=[_CALL, ToolCall("123456789", "run", "{}")])
_RESULTS: Final = [
    Message("tool", '{"t":  21}', call_id="aB3dE6gH9", name="look"),
    Message("tool", "It ran.", call_id="123456789", name="run"),
]


def choose_by_reference(reference: Reference, vocabulary: Vocabulary) -> Mistral | Instruct:
    """The typed template that encodes as the library does. Raises UnsupportedModelError when there is none."""
    encoder = PromptEncoder(vocabulary)
    probes = list(_probes())
    expected = [reference(*probe) for probe in probes]
    for candidate in _candidates(vocabulary):
        served = 0
        for probe, wanted in zip(probes, expected, strict=True):
            try:
                ids = encoder.encode(candidate.pieces(probe[0], continue_final=probe[1])).ids
            except InvalidRequestError:
                continue
            if wanted is not None and ids != wanted:
                break
            served += wanted is not None
        else:
            if served:
                return candidate
    raise UnsupportedModelError("The model's own library encodes conversations in a way that is not known.")


def _probes() -> Iterator[tuple[Conversation, bool]]:
    alone, talk = [_QUESTION], [*_ASK, _QUESTION]
    for messages in (alone, talk, [*_ASK[1:], _QUESTION], [_ASK[0], _QUESTION]):
        yield Conversation(messages), False
        yield Conversation([*messages, Message("assistant", "It is")]), True
        yield Conversation(messages, _TOOLS), False
        yield Conversation([*messages, _CALLS, *_RESULTS], _TOOLS), False
        yield Conversation([*messages, _CALLS, *_RESULTS, Message("assistant", "42."), _QUESTION], _TOOLS), False
        yield Conversation([*messages, _CALLS, *_RESULTS, _QUESTION], _TOOLS), False
    yield Conversation([*_ASK, _ASK[0], _QUESTION]), False
    beside = Message("assistant", "I look.", calls=[_CALL])
    yield Conversation([_QUESTION, beside, _RESULTS[0]], _TOOLS), False


def _candidates(vocabulary: Vocabulary) -> Iterator[Mistral | Instruct]:
    for style in STYLES:
        try:
            yield Mistral.of(vocabulary, style)
        except KeyError:
            continue
    for plain in PLAIN_STYLES:
        yield Instruct.of(vocabulary, plain)
