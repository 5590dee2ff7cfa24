"""Which conversations are refused, with which message and which field."""

from __future__ import annotations

import pytest
from tests.recipe.families import Family, talk

from forebay.core.errors import InvalidRequestError
from forebay.recipe import Conversation, Message, Recipe, ToolSpec
from forebay.recipe.conversation import MAX_MESSAGES

_DEEP: dict[str, object] = {}
for _ in range(80):
    _DEEP = {"a": _DEEP}
_DEEP_PARAM = "tools.0.function.parameters" + ".a" * 64


@pytest.mark.parametrize(
    ("conversation", "continued", "said", "param"),
    [
        (Conversation([]), False, "no message", "messages"),
        (talk(("user", "Hi"), ("king", "x")), False, "'king' is not a role", "messages.1.role"),
        (
            Conversation([Message("user", "Hi", reasoning="x")]),
            False,
            "Only an assistant",
            "messages.0.reasoning_content",
        ),
        (Conversation([Message("user", "Hi", call_id="x")]), False, "answer a call", "messages.0.tool_call_id"),
        (
            Conversation([Message("user", "Hi")], [ToolSpec("f", "\ud800")]),
            False,
            "surrogate",
            "tools.0.function.description",
        ),
        (Conversation([Message("user", "Hi")], [ToolSpec("f", "", _DEEP)]), False, "nested more than", _DEEP_PARAM),
        (talk(("user", "Hi"), ("assistant", "x")), False, "nothing to answer", "messages.1.role"),
        (talk(("system", "Hi")), False, "nothing to answer", "messages.0.role"),
        (talk(("user", "Hi")), True, "can be continued", "messages.0.role"),
        (talk(("user", "a\ud800b")), False, "surrogate", "messages.0.content"),
        (talk(*[("user", "x")] * (MAX_MESSAGES + 1)), False, f"at most {MAX_MESSAGES}", "messages"),
    ],
)
def test_refused_for_every_model(
    built: dict[str, Family], conversation: Conversation, continued: bool, said: str, param: str
) -> None:
    for name in ("chatml", "qwen3"):
        with pytest.raises(InvalidRequestError, match=said) as caught:
            built[name].recipe.encode_chat(conversation, continue_final=continued)
        assert caught.value.param == param


def test_bare_text_with_a_lone_surrogate_is_refused(built: dict[str, Family]) -> None:
    with pytest.raises(InvalidRequestError, match="surrogate"):
        built["chatml"].recipe.encode_text("a\ud800b")


def test_parts_are_joined_by_line_breaks(built: dict[str, Family]) -> None:
    recipe = built["chatml"].recipe
    parts = Conversation([Message("user", ["one", "two"])])
    assert recipe.encode_chat(parts).ids == recipe.encode_chat(talk(("user", "one\ntwo"))).ids


def test_a_model_without_a_template_takes_bare_text_only(built: dict[str, Family]) -> None:
    from dataclasses import replace

    from forebay.recipe.hf_tokenizer import hf_parts

    recipe = Recipe(replace(hf_parts(built["llama3"].folder), chat_template=None))
    assert recipe.template_name == "none"
    assert recipe.encode_text("Hi").ids == built["llama3"].recipe.encode_text("Hi").ids
    with pytest.raises(InvalidRequestError, match="no chat template") as caught:
        recipe.encode_chat(talk(("user", "Hi")))
    assert caught.value.param == "messages"
