"""An answer that the server recognises in a history goes in with the ids that the model produced."""

from __future__ import annotations

import pytest
from tests.recipe.families import Family

from forebay.core.prompt import Origin, Span
from forebay.recipe import Conversation, KeptAnswer, Message
from forebay.recipe.encoder import PromptEncoder
from forebay.recipe.pieces import Control, Kept, Text, Words
from forebay.recipe.templates.answers import kept_or
from forebay.recipe.vocabulary import Vocabulary


def _with_kept(kept: KeptAnswer | None) -> Conversation:
    return Conversation([Message("user", "What?"), Message("assistant", "The fox", kept=kept), Message("user", "Why?")])


def test_kept_ids_replace_the_text_between_head_and_end(built: dict[str, Family]) -> None:
    recipe = built["chatml"].recipe
    ids = recipe.plain_ids("T") + recipe.plain_ids("he") + recipe.plain_ids(" fox")
    rendered = recipe.encode_chat(_with_kept(None)).ids
    prompt = recipe.encode_chat(_with_kept(KeptAnswer(ids)))
    asked = recipe.encode_chat(Conversation([Message("user", "What?")])).ids
    assert prompt.ids[: len(asked) + len(ids)] == asked + ids
    assert prompt.ids != rendered
    assert prompt.ids[len(asked) + len(ids) :] == rendered[len(asked) + len(recipe.plain_ids("The fox")) :]
    assert Span(len(asked), len(asked) + len(ids), Origin.ASSISTANT) in prompt.spans


@pytest.mark.parametrize(("reasoning", "expected"), [(True, (7, 8, 9)), (False, (9,))])
def test_reasoning_is_left_out_where_the_template_leaves_it_out(reasoning: bool, expected: tuple[int, ...]) -> None:
    message = Message("assistant", "x", kept=KeptAnswer([7, 8, 9], body=2))
    assert list(kept_or(message, iter([Words("never")]), reasoning=reasoning)) == [Kept(expected)]


def test_a_message_that_is_not_kept_is_rendered() -> None:
    pieces = [Text("x", Origin.ASSISTANT)]
    assert list(kept_or(Message("assistant", "x"), pieces, reasoning=True)) == pieces


def test_an_answer_that_was_all_reasoning_gives_nothing() -> None:
    message = Message("assistant", "", kept=KeptAnswer([7], body=1))
    assert list(kept_or(message, [Words("never")], reasoning=False)) == []


def test_text_behind_kept_ids_gets_no_space_of_its_own(built: dict[str, Family]) -> None:
    """SentencePiece's space belongs to the start of a text, and kept ids are text."""
    from forebay.recipe.hf_tokenizer import hf_parts

    family = built["llama2"]
    vocabulary = Vocabulary(hf_parts(family.folder))
    bos = family.id_of("<s>")
    kept = tuple(vocabulary.plain_ids("the"))
    ids = PromptEncoder(vocabulary).encode([Control(bos), Kept(kept), Words(" fox")]).ids
    assert ids == [bos, *vocabulary.plain_ids("the fox")]
