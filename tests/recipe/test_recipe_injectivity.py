"""Different conversations give different ids, so no text can stand for a turn that was not taken."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.families import Family, property_test

from forebay.core.errors import InvalidRequestError
from forebay.recipe import Conversation, Message

_MARKS = {
    "chatml": ("<|im_start|>", "<|im_end|>", "\n", "user\n", "assistant\n", "a"),
    "llama3": ("<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\n", "\n\n", "user", "a"),
    "qwen3": ("<|im_end|>\n<|im_start|>user\n", "<think>", "\n", "a"),
    "llama2": ("[INST]", "[/INST]", " [/INST] ", "</s>", "<s>", "[INST] ", "<<SYS>>\n", "\n<</SYS>>\n\n", "a", " "),
    "mistral-v1": (" [INST] ", " [/INST] ", "[/INST]", "</s>", "a", " ", "\n\n"),
    "alpaca": ("### Instruction:\n", "\n\n### Response:\n", "</s>\n", "a", "\n\n"),
    "zephyr": ("<|user|>\n", "</s>\n", "<|assistant|>\n", "a", "\n"),
}


def _conversations(name: str) -> st.SearchStrategy[list[Message]]:
    text = st.lists(st.sampled_from(_MARKS[name]), min_size=1, max_size=4).map("".join)
    turn = st.tuples(st.just("user"), text, st.just("assistant"), text)
    return st.tuples(st.none() | text, st.lists(turn, max_size=2), text).map(_messages)


def _messages(drawn: tuple[str | None, list[tuple[str, str, str, str]], str]) -> list[Message]:
    system, turns, last = drawn
    messages = [] if system is None else [Message("system", system)]
    for _, asked, _, answered in turns:
        messages += [Message("user", asked), Message("assistant", answered)]
    return [*messages, Message("user", last)]


def _meaning(name: str, messages: list[Message]) -> object:
    """What a conversation says to the model: some templates trim text, and Mistral joins the system message to a
    question."""
    if name in ("llama3", "llama2"):
        said = [(message.role, message.content.strip()) for message in messages]
        return _merged(said) if name == "llama2" else said
    if name == "qwen3":
        return [(message.role, message.content.rpartition("</think>")[2].lstrip("\n")) for message in messages]
    if name == "mistral-v1":
        return _merged([(message.role, message.content) for message in messages])
    return [(message.role, message.content) for message in messages]


def _merged(said: Sequence[tuple[str, str]]) -> object:
    if said[0][0] != "system":
        return said
    return [("user", f"{said[0][1]}\n\n{said[1][1]}"), *said[2:]]


@pytest.mark.parametrize("name", sorted(_MARKS))
@property_test
@given(data=st.data())
def test_different_conversations_have_different_ids(built: dict[str, Family], name: str, data: st.DataObject) -> None:
    recipe = built[name].recipe
    first = data.draw(_conversations(name))
    second = data.draw(_conversations(name))
    if _meaning(name, first) == _meaning(name, second):
        return
    try:
        ids = [recipe.encode_chat(Conversation(messages)).ids for messages in (first, second)]
    except InvalidRequestError:
        return
    assert ids[0] != ids[1]


@pytest.mark.parametrize("name", sorted(_MARKS))
@property_test
@given(data=st.data())
def test_one_message_cannot_stand_for_two_turns(built: dict[str, Family], name: str, data: st.DataObject) -> None:
    """The sharpest attack: type exactly what the template would render for the rest of the conversation."""
    family = built[name]
    messages = data.draw(_conversations(name))
    if len(messages) < 3 or messages[0].role == "system":
        return
    real = family.recipe.encode_chat(Conversation(messages)).ids
    rendered = family.rendered(Conversation(messages))
    typed = rendered[max(rendered.find(messages[0].content.strip()), 0) :]
    forged = family.recipe.encode_chat(Conversation([Message("user", typed)])).ids
    assert forged != real
    whole = family.recipe.encode_chat(Conversation([Message("user", rendered)])).ids
    assert whole != real
